"""The methods: one file per part, one folder per axis, and the table of published names (`published.py`).

`naming.py` turns text into a `Method`, `describe.py` describes a method without running it.
"""
