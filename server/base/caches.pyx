# cython: language_level=3
"""Having the processor fetch what is needed next, while it does other things."""


def prefetch(list objects not None):
    for one in objects:
        fetch(<void *>one)
