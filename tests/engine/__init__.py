"""Tests of the core without sockets."""
