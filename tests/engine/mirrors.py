"""Clients that keep a copy of what they are sent, where only the test lets time pass."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from hypothesis import strategies as st

from tests.engine.support import Core
from tests.storage.sow.support import topic_spec
from tests.support.sow import split_records

Step: TypeAlias = tuple[str, tuple[Any, ...], dict[str, Any]]
"""A method of a world, and what it is called with."""

_OTHERS = [f"other/{number}" for number in range(6)]


class Mirror:
    """A client that follows the topic `t`.

    Args:
        core: the engine.
        command: how it follows.

    Attributes:
        copy: what it should have of the topic, by SOW key.
    """

    def __init__(self, core: Core, command: str) -> None:
        self.peer = core.log_on("reader")
        self.command = command
        self.copy: dict[str, Any] = {}
        self._acks_awaited = 0

    @property
    def is_waiting(self) -> bool:
        """Whether a query is under way."""
        return self._acks_awaited > 0

    def ask(self, options: str, **keys: Any) -> None:
        """Follow, or follow something else."""
        header = {"c": self.command, "cid": "r", "sub_id": "r", "t": "t", "a": "completed", "bs": 3}
        self.peer.send(header | {"o": options} | keys)
        self._acks_awaited += 1

    def be_busy(self) -> None:
        """Ask for something that takes so many slices that what follows has to wait."""
        self.peer.send({"c": "sow", "cid": "busy", "t": "^other/", "a": "completed"})
        self._acks_awaited += 1

    def take_in(self) -> None:
        """Apply what has been received."""
        for header, content in self.peer.take_frames():
            if header["c"] == "ack":
                assert header["status"] == "success", header
                self._acks_awaited -= 1
            elif header["c"] == "sow":
                for record, body in split_records(header, content):
                    if record["t"] == "t":
                        self.copy[record["k"]] = json.loads(body)
            elif header["c"] == "oof":
                self.forget(header["k"], json.loads(content))
            elif header["c"] == "p":
                before = self.copy.get(header["k"], {}) if "delta" in self.command else {}
                self.copy[header["k"]] = before | json.loads(content)

    def forget(self, key: str, _message: dict[str, Any]) -> None:
        """What it has is to go."""
        del self.copy[key]


def query(core: Core, **terms: Any) -> dict[str, Any]:
    """What a query gives, by SOW key, in its order; no time passes for others."""
    peer = core.log_on("auditor")
    peer.send({"c": "sow", "cid": "q", "t": "t", "bs": 1000} | terms)
    messages: dict[str, Any] = {}
    ended = False
    while not ended:
        for header, content in peer.take_frames():
            ended |= header["c"] == "group_end"
            if header["c"] == "sow":
                for record, body in split_records(header, content):
                    messages[record["k"]] = json.loads(body)
        if not ended:
            core.clock.turn()
    peer.leave()
    return messages


class World:
    """An engine, a publisher, and time.

    Attributes:
        core: the engine.
        publisher: the publisher.
        readers: those who mirror what they are sent.
    """

    readers: Sequence[Mirror]

    def __init__(self) -> None:
        self.core = Core()
        self.core.keep(
            topic_spec("/id", name="t", expiration_enabled=True),
            *(topic_spec("/id", name=name) for name in _OTHERS),
        )
        self.publisher = self.core.log_on("publisher")
        for name in _OTHERS:
            self.publisher.send({"c": "p", "t": name}, b'{"id":1}')

    def put(self, message: dict[str, Any], **keys: Any) -> None:
        """A message takes the place of the record with its key, for a while if `e` says so."""
        self.publisher.send({"c": "p", "t": "t"} | keys, json.dumps(message).encode())

    def delete(self, filter_: str) -> None:
        """Records go."""
        self.publisher.send({"c": "sow_delete", "t": "t", "f": f"({filter_}) AND /id < 4"})

    def turn(self) -> None:
        """The engine goes on with queries."""
        self.core.clock.turn()

    def wait(self, seconds: float) -> None:
        """Time passes; all queries end, and records expire."""
        self.core.clock.advance(seconds)

    def check(self) -> None:
        """Compare the copies of all readers whose query has ended."""
        raise NotImplementedError

    def stays_right(self, steps: Iterable[Step]) -> None:
        """Take steps; the copies have to be right after every one."""
        for name, arguments, keys in steps:
            getattr(self, name)(*arguments, **keys)
            self.check()
        self.wait(0.1)
        self.check()

    def ends_right(self, steps: Iterable[Step]) -> None:
        """Take steps; the copies have to be right once everything that waited has been sent."""
        for name, arguments, keys in steps:
            getattr(self, name)(*arguments, **keys)
            for reader in self.readers:
                reader.take_in()
        self.wait(2)
        self.check()


def call(name: str, *arguments: st.SearchStrategy[Any], **keys: Any) -> st.SearchStrategy[Step]:
    """A step: a method of the world, and what it is called with."""
    return st.tuples(st.just(name), st.tuples(*arguments), st.just(keys))
