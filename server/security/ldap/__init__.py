"""Users and passwords that a directory knows."""
