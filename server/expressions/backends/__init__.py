"""Back ends of expressions: generated Python, NumPy columns, and plain tests in C."""
