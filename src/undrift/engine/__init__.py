"""Engines: they map orders to replies, in this process, in worker processes or on a Ray cluster, always with the same bits.

Nothing is imported here: workers must be able to start before torch is loaded.
"""
