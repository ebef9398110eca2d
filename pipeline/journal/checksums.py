"""Checking the checksums of many entries with one call.

A checksum call costs more than the bytes of a message do, so entries are not checked one by one. A
CRC is linear: that of A followed by B is crc(A)·x^(8·len(B)) + crc(B), in polynomials over GF(2)
modulo the CRC's own. From the checksums that records hold, what a block of bodies as a whole must
have follows by arithmetic on whole columns, and one call over the block tells whether it does. Only
if it does not are entries checked singly, to name the one that is damaged.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt

from server.journal.layout import crc32c

Words = npt.NDArray[np.uint32]

LARGEST_BLOCK: Final = 1 << 20
"""Bytes that are checked with one call at most: the table of powers is four times as large."""

_POLYNOMIAL: Final = np.uint32(0x82F63B78)  # Castagnoli's, the lowest bit is the highest power
_ONE: Final = 0x80000000
_BITS: Final = np.arange(31, -1, -1, dtype=np.uint32)  # of a word, from x^0 on


def bodies_check(block: bytes, ends: npt.NDArray[np.int64], checksums: Words) -> bool:
    """Whether all bodies of a block have the checksums that they should.

    Args:
        block: bodies, back to back, LARGEST_BLOCK bytes at most.
        ends: for each body where it ends in the block, the last one where the block ends.
        checksums: for each body the checksum it should have.
    """
    powers = _powers()[len(block) - ends]
    terms = checksums >> _BITS[:, None]  # a row for each bit: row by row is three times as fast
    terms &= np.uint32(1)
    terms *= powers
    sums = np.bitwise_xor.reduce(terms, axis=1)
    total = np.uint32(0)
    for one in sums[::-1]:  # Horner's rule: the highest power first
        total = _times_x(total) ^ one
    return int(total) == int(crc32c(block))


@cache
def _powers() -> Words:
    """x^(8·n) for every n up to LARGEST_BLOCK."""
    powers = np.full(1, _ONE, np.uint32)
    while len(powers) <= LARGEST_BLOCK:
        step = _advance(int(powers[-1]))  # x^(8·len(powers))
        powers = np.concatenate((powers, _multiply(powers, step)))
    return powers


def _advance(word: int) -> int:
    """A polynomial times x^8."""
    value = np.uint32(word)
    for _ in range(8):
        value = _times_x(value)
    return int(value)


def _times_x(word: np.uint32) -> np.uint32:
    carried = _POLYNOMIAL if word & np.uint32(1) else np.uint32(0)
    return (word >> np.uint32(1)) ^ carried


def _multiply(words: Words, factor: int) -> Words:
    """Each of some polynomials times one and the same."""
    product = np.zeros_like(words)
    term = np.uint32(factor)
    for bit in _BITS:
        product ^= ((words >> bit) & np.uint32(1)) * term
        term = _times_x(term)
    return product
