"""One run: its options, its setup, the run itself, its folder and its result. Several runs are in `study/`."""
