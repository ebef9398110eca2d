# cython: language_level=3
"""Prefetch of objects into the processor's caches, while it executes other code."""


def prefetch(list objects not None):
    for one in objects:
        fetch(<void *>one)
