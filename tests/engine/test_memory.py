"""What exists at the end of the start costs the garbage collector nothing; later garbage goes."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from server.process import garbage_collection
from tests.engine.support import SimulatedClock


@pytest.fixture(autouse=True)
def usual_collection() -> Iterator[None]:
    """As it was, afterwards: with the collected tests set aside, see tests/conftest.py."""
    thresholds, callbacks = gc.get_threshold(), list(gc.callbacks)
    yield
    gc.freeze()
    gc.set_threshold(*thresholds)
    gc.callbacks[:] = callbacks


class Circle:
    def __init__(self) -> None:
        self.itself = self


def test_what_a_topic_has_at_the_start_and_what_it_adds_later_is_not_walked_through() -> None:
    filed: dict[int, object] = {number: (str(number),) for number in range(100)}
    garbage_collection.settle()
    filed.update({number: (str(number), number) for number in range(100, 5000)})
    gc.collect()
    tracked = gc.get_objects()
    assert not any(each is filed for each in tracked)
    values = {id(value) for value in filed.values()}
    assert not any(id(each) in values for each in tracked)


def test_circles_made_later_are_collected() -> None:
    garbage_collection.settle()
    gone = weakref.ref(Circle())
    gc.collect()
    assert gone() is None


def test_what_takes_long_to_walk_through_is_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    """When it has been walked through as often as anything is; what comes later is not."""
    monkeypatch.setattr(garbage_collection, "_LONG_TRAVERSAL_S", 0.0)
    garbage_collection.settle()
    many = [Circle() for _ in range(1000)]
    gc.collect(1)
    assert any(each is many[-1] for each in gc.get_objects())
    gc.collect()
    later = Circle()
    tracked = gc.get_objects()
    assert not any(each is one for each in tracked for one in (many[0], many[-1]))
    assert any(each is later for each in tracked)


def test_what_survives_where_much_is_freed_is_not_set_aside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Then it is garbage that takes long, as when many connections come and go."""
    monkeypatch.setattr(garbage_collection, "_LONG_TRAVERSAL_S", 0.0)
    garbage_collection.settle()
    circle = Circle()
    gc.disable()
    for _ in range(1_001):
        Circle()
    gc.enable()
    gc.collect()
    assert any(each is circle for each in gc.get_objects())


class Connections:
    """So many are there, and so many have gone."""

    def __init__(self) -> None:
        self.alive = self.gone = 0

    def go(self, left: int) -> None:
        self.alive -= left
        self.gone += left


@pytest.mark.parametrize(
    ("set_aside", "left", "is_busy", "is_collected"),
    [
        (99, 20_000, False, False),
        (20_000, 99, False, False),
        (100, 100, False, True),
        (9_999, 20_000, True, False),
        (20_000, 9_999, True, False),
        (10_000, 10_000, True, True),
    ],
)
def test_circles_that_have_been_set_aside_go_when_connections_have(
    monkeypatch: pytest.MonkeyPatch,
    set_aside: int,
    left: int,
    *,
    is_busy: bool,
    is_collected: bool,
) -> None:
    """After some when nothing is asked for, after many at any moment; if they were set aside."""
    monkeypatch.setattr(garbage_collection, "_IDLE_SECONDS", -1.0 if is_busy else 1000.0)
    garbage_collection.settle()
    clock, connections = SimulatedClock(), Connections()
    collecting = garbage_collection.GarbageCollector(
        clock, lambda: connections.gone, lambda: connections.alive
    )
    connections.alive = set_aside
    circle = Circle()
    with monkeypatch.context() as patched:
        patched.setattr(garbage_collection, "_LONG_TRAVERSAL_S", 0.0)
        gc.collect()
    gone = weakref.ref(circle)
    del circle
    clock.advance(1)
    connections.alive = left
    connections.go(left)
    clock.advance(60)
    collecting.stop()
    assert (gone() is None) == is_collected


def test_what_comes_while_as_much_goes_is_walked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """The collector does not count it; the oldest generation is what has been walked through."""
    monkeypatch.setattr(garbage_collection, "_WORK_SECONDS", 0.0)
    monkeypatch.setattr(garbage_collection, "_LONG_TRAVERSAL_S", 1000.0)
    garbage_collection.settle()
    circle = Circle()
    clock = SimulatedClock()
    collecting = garbage_collection.GarbageCollector(clock, lambda: 0, lambda: 0)
    clock.advance(1)
    collecting.stop()
    assert any(each is circle for each in gc.get_objects(2))
