"""Recovery of the log at a start: finds its files and its end."""
