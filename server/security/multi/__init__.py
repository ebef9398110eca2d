"""libamps_multi_authentication.so: users whom a directory or a Kerberos realm knows."""
