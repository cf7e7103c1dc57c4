"""The papers' tables as presets: one TOML file each, read by `undrift.papers.papers`."""
