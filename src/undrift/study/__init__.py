"""Studies: many runs as one piece of work. Comparisons of methods, the pool of processes, run folders, standings."""
