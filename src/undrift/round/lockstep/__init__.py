"""Lock-step: many small clients train as one stack, with the clients as the first axis of every tensor.

A client's result does not depend on which clients it shares a stack with, nor on its place in it: the rows of a stack
are aligned alike (linear.py says why that matters), and everything else is computed row by row.
"""
