"""One run: its options, everything made from them, the folder it writes, resuming it, and its result."""
