"""Topics, their names, and the patterns that match names."""
