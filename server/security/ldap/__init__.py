"""Authentication of users by an LDAP directory."""
