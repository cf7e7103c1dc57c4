"""The papers' experiments: presets (one TOML file per table or figure), how they run, and ours beside the printed numbers."""
