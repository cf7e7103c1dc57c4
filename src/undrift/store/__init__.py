"""What a run stores on disk: the record (`run.sqlite`), client states and shelf rows, checkpoints."""
