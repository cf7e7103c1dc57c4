"""What is kept of a run: the record, client states and shelf rows, checkpoints."""
