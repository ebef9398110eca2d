"""Writing by SQL: INSERT publishes, UPDATE publishes deltas, DELETE is sow_delete."""
