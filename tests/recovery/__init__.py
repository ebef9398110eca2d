"""Tests that kill the server, and look at what comes back."""
