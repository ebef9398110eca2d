"""Large bodies, which a thread frees when nothing refers to them any more."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from server.util.large_bodies import MIN_LARGE_BYTES, free_when_unused
from server.util.unlocked_free import free_unshared

SIZE = 4 * MIN_LARGE_BYTES


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def is_below(limit: int) -> bool:
    return resident() < limit


def becomes_true(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 20
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return condition()


def test_bytes_are_freed_when_the_last_reference_is_gone() -> None:
    body = b"x" * SIZE
    view = memoryview(body)[1000:]
    free_when_unused(body)
    del body
    time.sleep(0.1)
    assert view.obj == b"x" * SIZE  # still referred to, and so unchanged
    limit = resident() - SIZE // 2
    del view
    assert becomes_true(lambda: resident() < limit)


def test_bytes_that_come_later_are_freed_as_well() -> None:
    """The thread's work ends when nothing waits, and begins again."""
    for _ in range(3):
        limit = resident() + SIZE // 2
        bodies = [bytes([number]) * SIZE for number in range(2)]
        for body in bodies:
            free_when_unused(body)
            free_when_unused(body)
        del body
        bodies.clear()
        assert becomes_true(partial(is_below, limit))


def test_only_bytes_that_nothing_else_refers_to_are_removed() -> None:
    """Of any size: the pages that an object shares with others are left alone."""
    kept = b"k" * SIZE
    waiting = {number: b"%d" % number * 3000 for number in range(100)}
    waiting[200], neighbours = kept, [b"n" * 5000 for _ in range(100)]
    free_unshared(waiting)
    assert waiting == {200: b"k" * SIZE}
    assert set(neighbours) == {b"n" * 5000}
    del kept
    free_unshared(waiting)
    assert not waiting
