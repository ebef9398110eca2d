"""What the simulation finds."""


class Violation(AssertionError):
    """Something that must never happen has happened."""
