"""Maintenance of a running instance: journal retention, compaction, expiry of certificates."""
