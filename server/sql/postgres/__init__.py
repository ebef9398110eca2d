"""PostgreSQL's protocol 3.0, a server's side of it, without I/O."""
