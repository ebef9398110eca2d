"""Sources: what of the instance's parts is entries of which resource. See `catalogue`."""
