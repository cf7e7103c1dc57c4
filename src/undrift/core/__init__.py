"""What everything rests on: the model as one flat vector, random streams, determinism, local optimizers, the text grammar,
and the two kinds of errors. Knows nothing of federated learning."""
