"""What must be true of a server that has come back, whatever happened to it."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tests.recovery.publishers import ENRICHED, JOURNALED, RECORDS, Command, Follower, Publisher
from tests.support.raw import RawPeer
from tests.support.server import RunningServer
from tests.support.sow import query

_WAIT: Final = 20.0

Records = dict[str, dict[str, dict[str, Any]]]
"""What records are, by topic and key."""


@dataclass(frozen=True)
class Logged:
    """A message as a bookmark subscription gives it."""

    bookmark: str
    topic: str
    body: bytes
    correlation: str | None
    message: dict[str, Any]


@dataclass
class Audit:
    """Compares a server with what its publishers did, again and again.

    Attributes:
        publishers: those with sequence numbers and those without.
        follower: what it has seen must be what the log has.
        chance: decides which bookmarks are tried.
        known: the log as it was at the last audit.
    """

    publishers: list[Publisher]
    follower: Follower
    chance: random.Random
    known: list[Logged] = field(default_factory=list)

    def check(self, server: RunningServer) -> None:
        """Compare everything."""
        log = self._read_log(server)
        lasts = {one.name: one.last_sequence(server) for one in self.publishers if one.numbered}
        records = self._read_records(server)
        replayed, guesses = self._replay(log, lasts)
        assert self._records_are(records, replayed, guesses), (
            f"the records are not what the log comes to: {_difference(records, replayed)}"
        )
        self._check_bookmarks(server, log)
        seen = self.follower.seen
        assert [(one.bookmark, one.body) for one in log[: len(seen)]] == seen, (
            "a subscriber has been given something else than what the log has"
        )
        self.known = log

    def _read_log(self, server: RunningServer) -> list[Logged]:
        """All of the log, which must begin with what it was at the last audit."""
        with server.log_on("auditor") as peer:
            log = _replay(peer, "0")
        assert log[: len(self.known)] == self.known, "the log has changed"
        assert len({one.bookmark for one in log}) == len(log), "a message is in the log twice"
        return log

    def _check_bookmarks(self, server: RunningServer, log: list[Logged]) -> None:
        """A bookmark of any age leads to what comes after its message, and to nothing else."""
        if not log:
            return
        recent = max(0, len(log) - 300)
        for low in (0, recent):
            position = self.chance.randrange(low, len(log))
            with server.log_on("auditor") as peer:
                found = _replay(peer, log[position].bookmark, at_most=400)
            assert found == log[position + 1 :][: len(found)], "a bookmark leads to a wrong place"
            assert len(found) >= min(400, len(log) - position - 1), "a bookmark misses messages"

    def _read_records(self, server: RunningServer) -> Records:
        with server.log_on("auditor") as peer:
            return {
                topic: {message["id"]: message for message in query(peer, topic).messages}
                for topic in RECORDS
            }

    def _replay(
        self, log: list[Logged], lasts: dict[str, int]
    ) -> tuple[Records, dict[str, list[Command]]]:
        """What the records are after the log; and deletions of which nobody can tell.

        Of a publisher without sequence numbers it is not known which deletions after its last
        message have been recorded.
        """
        records: Records = {topic: {} for topic in RECORDS}
        done = dict.fromkeys((one.name for one in self.publishers), 0)
        by_name = {one.name: one for one in self.publishers}
        for entry in log:
            one = by_name[entry.message["by"]]
            number = entry.message["n"]
            for command in one.commands[done[one.name] : number - 1]:
                assert command.kind == "sow_delete", "something is missing before what is there"
                _apply(command, records)
            assert number > done[one.name], "the order of a publisher is lost"
            command = one.commands[number - 1]
            expected = _apply(command, records)
            assert (entry.message, entry.topic) == (expected, command.topic), (entry, command)
            assert command.correlation in (None, entry.correlation)
            if one.numbered:
                assert entry.bookmark.split("|")[1] == str(number)
            done[one.name] = number
        guesses: dict[str, list[Command]] = {}
        for one in self.publishers:
            rest = one.commands[done[one.name] :]
            if one.numbered:
                last = lasts[one.name]
                assert one.acknowledged <= last <= len(one.commands), "an acknowledged one is lost"
                rest = one.commands[done[one.name] : last]
                assert all(command.kind == "sow_delete" for command in rest), "a message is lost"
                for command in rest:
                    _apply(command, records)
                one.acknowledged = max(one.acknowledged, last)
            else:
                safe = one.commands[done[one.name] : one.acknowledged]
                assert all(command.kind == "sow_delete" for command in safe), "a message is lost"
                for command in safe:
                    _apply(command, records)
                guesses[one.name] = rest[len(safe) :]
        return records, guesses

    def _records_are(
        self, found: Records, expected: Records, guesses: dict[str, list[Command]]
    ) -> bool:
        """Whether records are as expected, after as many of the deletions in doubt as it takes."""
        for one in self.publishers:
            if one.numbered:
                continue
            pending = guesses[one.name]
            length = max(len(one.commands) - len(pending), one.acknowledged)
            for command in pending:
                if found == expected or command.kind != "sow_delete":
                    break
                _apply(command, expected)
                length += 1
            del one.commands[length:]  # lost: this publisher repeats nothing
            one.acknowledged = length
        return found == expected


def _apply(command: Command, records: Records) -> dict[str, Any]:
    """Carry out a command; gives the message that goes into the log."""
    of_topic = records.get(command.topic, {})
    if command.kind == "sow_delete":
        of_topic.pop(command.key, None)
        return {}
    before = of_topic.get(command.key, {}) if command.kind == "delta_publish" else {}
    of_topic[command.key] = before | command.message
    if command.topic == ENRICHED:
        of_topic[command.key]["next"] = command.message["n"] + 1
    return of_topic[command.key]


def _difference(found: Records, expected: Records) -> Sequence[tuple[str, str, object, object]]:
    return [
        (topic, key, found[topic].get(key), expected[topic].get(key))
        for topic in RECORDS
        for key in sorted(found[topic].keys() | expected[topic].keys())
        if found[topic].get(key) != expected[topic].get(key)
    ][:5]


def _replay(peer: RawPeer, bookmark: str, at_most: int | None = None) -> list[Logged]:
    """The messages after a bookmark, to the end of the log or to some number of them."""
    peer.send({"c": "subscribe", "sub_id": "a", "t": JOURNALED, "bm": bookmark, "a": "completed"})
    log: list[Logged] = []
    while at_most is None or len(log) < at_most:
        header, body = peer.receive(_WAIT)
        if header["c"] == "ack":
            assert header["status"] == "success", header
            break
        log.append(Logged(header["bm"], header["t"], body, header.get("x"), json.loads(body)))
    return log
