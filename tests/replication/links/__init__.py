"""Links between instances, without sockets."""
