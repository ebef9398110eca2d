"""Tests of queries, by SQL text in and rows out."""
