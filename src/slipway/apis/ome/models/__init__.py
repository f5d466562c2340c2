"""The three kinds of weights: the nodes or claims with their files, and the Jobs that load them."""
