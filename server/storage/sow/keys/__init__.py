"""SOW keys: generation, chaining and partitions."""
