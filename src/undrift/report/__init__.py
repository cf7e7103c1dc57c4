"""Pages and figures for readers: reports of runs and comparisons, what parts noted, who holds which labels."""
