"""Measurements: speed relative to the bare training loop (`undrift bench`), and the counted costs of methods."""
