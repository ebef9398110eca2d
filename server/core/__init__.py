"""Sessions, turns and the engine: where state changes, in one order, on one thread."""
