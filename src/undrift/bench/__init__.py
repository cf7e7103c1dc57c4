"""Speed, as a ratio to the bare training loop, measured in pairs (`undrift bench`)."""
