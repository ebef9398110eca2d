"""libamps_multi_authentication.so: users of a directory or of a Kerberos realm."""
