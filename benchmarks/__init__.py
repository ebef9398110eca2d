"""Benchmarks: a script for each claim, each printing a table with a peer or the floor beside it."""
