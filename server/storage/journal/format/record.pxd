# cython: language_level=3
"""Offsets of a record's fields; see docs/formats/journal.md and `server.storage.journal.format.layout`."""

cdef enum:
    SIZE = 96
    TXID = 0
    TIMESTAMP = 8
    CLIENT = 16
    SEQUENCE = 24
    SOURCE_TXID = 32
    SOURCE = 40
    SOW_KEY = 48
    BODY_START = 56
    BODY_LENGTH = 64
    EXTRAS_LENGTH = 68
    TOPIC = 72
    ORIGIN = 76
    EXPIRATION = 80
    BODY_CRC = 84
    KIND = 88
    FLAGS = 89
    LAG = 90
    CRC = 92
