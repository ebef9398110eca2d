"""Writing the log: numbering, encoding, group commit, new and archived files."""
