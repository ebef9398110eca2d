"""Actions: work that an instance does by itself, on schedule or in answer to an event."""
