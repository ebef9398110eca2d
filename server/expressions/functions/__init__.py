"""The functions that expressions call: the registry, built-in functions, and those of modules."""
