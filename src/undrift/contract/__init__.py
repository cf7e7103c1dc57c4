"""What a part of a method is: the axes and their hooks, what a hook sees (plan, server, job, batch, replies), what may
travel between client and server, and how parts join into a method."""
