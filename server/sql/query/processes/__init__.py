"""Processes that execute queries with DuckDB, each one query at a time, within a limit of memory.

    query_engine -> process_pool -> process_query -> query_process  --socket-->  worker (DuckDB)

`protocol` has the messages between the server and a process; `worker` is the program of the
process, and `result_batches` its part that prepares results. The others are the server's side.
"""
