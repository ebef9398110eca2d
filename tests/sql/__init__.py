"""Tests of SQL over topics."""
