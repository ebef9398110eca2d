"""The functions that expressions call: the registry, what is built in, and what modules add."""
