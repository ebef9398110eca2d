"""Queries of records: candidates, filters and order."""
