<<<<<<< HEAD
"""Tests of SQL over topics."""
=======
"""Tests of the relational door."""
>>>>>>> f7886f24 (sql: PostgreSQL's protocol: messages, state of a connection, formats)
