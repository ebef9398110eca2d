"""SQL over the instance's topics, for clients of PostgreSQL and of Arrow Flight SQL.

    bytes of a client -> postgres (protocol) -> query (SQL to results) -> tables (topics as tables)

`connection` has the sockets: it feeds the protocol, and a `StatementRunner` answers its events on
worker threads. `statement_executor` serves both protocols. `services` is shared by the connections
of an instance.

`postgres` decodes and encodes the protocol and does no I/O. `query` parses and executes SQL with
DuckDB, over tables that a `TableSource` scans. `tables` is the source of the server's topics.
`live` follows topics: SUBSCRIBE and LISTEN. `flight` is for clients of Arrow Flight SQL, which get
results as columns.

All of this needs the extra `amperage[sql]`; nothing here is imported by a server without a
transport that speaks SQL.
"""
