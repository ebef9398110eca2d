"""Repair of damaged log entries with copies from other instances."""
