"""Processes and threads to which the modes of files count, also if they are root's."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_OVERRIDES: Final = 0b110
"""CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH, see capabilities(7): root may use any file."""
_BIND_SERVICE: Final = 1 << 10
_VERSION: Final = 0x20080522


def bind_by_modes() -> None:
    """Let modes count for this thread from now on, and ports below 1024 be root's no more."""
    _drop(_OVERRIDES | _BIND_SERVICE)


@contextmanager
def bound_by_modes() -> Iterator[None]:
    """Let modes count for this thread for a while."""
    found = _drop(_OVERRIDES)
    try:
        yield
    finally:
        _set(found)


def _drop(capabilities: int) -> ctypes.Array[ctypes.c_uint32]:
    """Give up capabilities, and return those that there were."""
    found = (ctypes.c_uint32 * 6)()
    assert ctypes.CDLL(None).capget(_header(), found) == 0
    less = (ctypes.c_uint32 * 6)(*found)
    less[0] &= ~capabilities
    _set(less)
    return found


def _set(capabilities: ctypes.Array[ctypes.c_uint32]) -> None:
    assert ctypes.CDLL(None).capset(_header(), capabilities) == 0


def _header() -> ctypes.Array[ctypes.c_uint32]:
    return (ctypes.c_uint32 * 2)(_VERSION, 0)
