"""LDAP, with a real directory and ones that misbehave."""
