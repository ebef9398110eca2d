"""libamps_oauth_authentication.so: who logs on shows what an authorization server gave them."""
