"""Kerberos with a real KDC."""
