"""Sessions, the scheduler and the engine: state changes here, in one order, on one thread."""
