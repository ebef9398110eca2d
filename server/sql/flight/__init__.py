"""Arrow Flight SQL: results of SQL as record batches, over gRPC; gateway.py has the overview."""
