"""Sources: the entries of each resource, from the instance's parts. See `catalogue`."""
