"""Tests of PostgreSQL's protocol."""
