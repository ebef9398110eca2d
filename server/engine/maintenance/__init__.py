"""Maintenance of an instance: journal retention, compaction, backups, expiry of certificates."""
