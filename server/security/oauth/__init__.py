"""libamps_oauth_authentication.so: logons with codes or tokens of an authorization server."""
