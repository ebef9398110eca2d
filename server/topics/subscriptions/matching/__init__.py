"""Matching: finds the filters that a message matches."""
