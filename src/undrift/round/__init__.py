"""One round: the loop at the server, a client's round and its local training, the orders and replies between them."""
