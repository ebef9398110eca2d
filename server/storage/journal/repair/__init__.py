"""Repair of damaged journal files."""
