"""Engines: they map a round's orders to the clients' replies, in this process, in worker processes or on a Ray cluster.
A part's result does not depend on the engine. (Nothing is imported here: workers start before torch is loaded.)
"""
