"""PostgreSQL's protocol 3.0, the server's side of it, without I/O.

    bytes -> protocol.py: messages.py, parameters.py -> events -> the caller
    bytes <- messages.py, formats.py: rows of Arrow batches <- the caller

The caller keeps the sockets, decides on users by scram.py or a password, and executes statements.
"""
