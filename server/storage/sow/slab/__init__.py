"""SOW files: memory-mapped slabs that form a log of records."""
