"""SQL: queries, tables, the protocol of PostgreSQL, and clients against a server process."""
