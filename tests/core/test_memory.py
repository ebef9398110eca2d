"""What exists at the end of the start costs the garbage collector nothing; later garbage goes."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from server.upkeep import memory


@pytest.fixture(autouse=True)
def usual_collection() -> Iterator[None]:
    """As it was, afterwards."""
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


class Circle:
    def __init__(self) -> None:
        self.itself = self


def test_what_a_topic_has_at_the_start_and_what_it_adds_later_is_not_walked_through() -> None:
    filed: dict[int, object] = {number: (str(number),) for number in range(100)}
    memory.settle()
    filed.update({number: (str(number), number) for number in range(100, 5000)})
    gc.collect()
    tracked = gc.get_objects()
    assert not any(each is filed for each in tracked)
    values = {id(value) for value in filed.values()}
    assert not any(id(each) in values for each in tracked)


def test_circles_made_later_are_collected() -> None:
    memory.settle()
    gone = weakref.ref(Circle())
    gc.collect()
    assert gone() is None
