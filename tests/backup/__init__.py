"""Backups of running instances: consistent under load, after kills, and restored."""
