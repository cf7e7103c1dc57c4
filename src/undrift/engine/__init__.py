"""Engines map orders to replies; parts cannot tell which one runs them. (Nothing is imported here: `spawn` must be able
to start workers before anybody imports torch.)"""
