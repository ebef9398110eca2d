"""Arrow Flight SQL: clients of ADBC and of pyarrow.flight against a server process."""
