"""Federations: which client holds which samples. Here are the class `Federation`, the ways to build one (`dealing.py`,
`from_clients.py`, `lazy.py`), the partitions, and the environment (noise, domains, faults, augmentation)."""
