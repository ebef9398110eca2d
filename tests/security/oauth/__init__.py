"""OAuth: codes and bearer tokens."""
