"""Transport filters: they can change or drop a command before the instance executes it."""
