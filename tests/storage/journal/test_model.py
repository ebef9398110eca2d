"""The log against a list: whatever is done, what has been appended is read back in order."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from server.storage.journal import (
    MESSAGES,
    EntryColumns,
    JournalCursor,
    JournalError,
    LogSpan,
    each,
    parse_bookmark,
)
from server.storage.journal.format.entry import JournalEntryKind, JournalTopic
from server.storage.journal.format.layout import crc32c, pack_extras
from tests.storage.journal.support import EVERYTHING, FILE, Bench, SetClock, read_all
from tests.support.chances import examples

TOPICS = [("json", "orders"), ("json", "trades"), ("fix", "orders"), ("xml", "\udcff")]
KINDS = [
    JournalEntryKind.PUBLISH,
    JournalEntryKind.DELTA_PUBLISH,
    JournalEntryKind.SOW_DELETE,
    JournalEntryKind.QUEUE_EVENT,
    JournalEntryKind.NO_OP,
]

Row = tuple[int, int, int, int, JournalTopic, int, bytes]
"""txid, time, client, sequence, topic, kind, body."""


class LogMachine(RuleBasedStateMachine):
    """Appends, commits, reopens, moves files; cursors read meanwhile."""

    @initialize(with_topic_index=st.booleans())
    def begin(self, with_topic_index: bool) -> None:
        self._directory = tempfile.TemporaryDirectory()
        self._clock = SetClock()
        self._with_topic_index = with_topic_index
        self._model: list[Row] = []
        self._removed = 0
        self._sequences = dict.fromkeys(range(1, 4), 0)
        self._copied: set[tuple[int, int]] = set()
        self._cursors: list[tuple[JournalCursor, list[Row]]] = []
        self._open()

    def _open(self) -> None:
        path = Path(self._directory.name)
        self._bench = Bench(
            path / "journal",
            clock=self._clock,
            archive=path / "archive",
            with_topic_index=self._with_topic_index,
        )
        self._journal = self._bench.journal

    @rule(
        client=st.integers(0, 3),
        topic=st.sampled_from(TOPICS),
        kind=st.sampled_from(KINDS),
        size=st.one_of(st.integers(0, 300), st.integers(100_000, 250_000)),
        times=st.integers(1, 5),
        correlation_id=st.sampled_from([b"", b"", b"abc"]),
        user=st.sampled_from([None, "ann", "bob"]),
    )
    def append(
        self,
        client: int,
        topic: tuple[str, str],
        kind: JournalEntryKind,
        size: int,
        times: int,
        correlation_id: bytes,
        user: str | None,
    ) -> None:
        if kind == JournalEntryKind.NO_OP:
            client = 0
        for _ in range(times):
            sequence = 0
            if client:
                self._sequences[client] += 1
                sequence = self._sequences[client]
            body = bytes([len(self._model) % 256]) * size
            txid = self._journal.append(
                self._journal.topic_handle(*topic),
                client,
                sequence,
                body,
                kind,
                correlation_id=correlation_id,
                origin=None if user is None else self._journal.origin_handle(user),
            )
            self._model.append(
                (txid, self._clock.now, client, sequence, JournalTopic(*topic), kind, body)
            )

    @rule(
        client=st.integers(0, 3),
        topics=st.lists(st.sampled_from(TOPICS), min_size=1, unique=True),
        sizes=st.lists(st.sampled_from([0, 1, 300, 250_000, 2 << 20]), max_size=12),
        user=st.sampled_from([None, "ann"]),
        lifetime=st.sampled_from([None, 0, 60]),
    )
    def append_batch(
        self,
        client: int,
        topics: list[tuple[str, str]],
        sizes: list[int],
        user: str | None,
        lifetime: int | None,
    ) -> None:
        first = self._sequences.get(client, 0) + 1
        numbers = list(range(first, first + len(sizes))) if client else []
        bodies = [bytes([number % 256]) * size for number, size in enumerate(sizes)]
        origin = None if user is None else self._journal.origin_handle(user)
        handles = {
            key: (self._journal.topic_handle(*topic), origin) for key, topic in enumerate(topics)
        }
        handle_keys = [number % len(topics) for number in range(len(bodies))]
        keys = [] if lifetime is None else [2**64 - 1 - number for number in numbers]
        before, start = self._journal.last_txid, 0
        txids: list[int] = []
        while start < len(bodies):
            run = self._journal.append_batch(
                handles,
                handle_keys if len(topics) > 1 else 0,
                client,
                numbers,
                bodies,
                start,
                keys,
                lifetime or 0,
            )
            txids += run.txids
            assert run.end > start or run.problem is not None
            if run.problem is not None:
                assert len(bodies[run.end]) > FILE, "only what can never fit is refused"
            start = run.end + (run.problem is not None)
        assert self._journal.commit()
        kept = [position for position, body in enumerate(bodies) if len(body) < FILE]
        found = list(self._journal.entries(before))
        assert [entry.txid for entry in found] == txids
        assert all(entry.expiration == (lifetime or 0) for entry in found)
        assert [entry.sow_key for entry in found] == [
            keys[position] if keys else 0 for position in kept
        ]
        for position, txid in zip(kept, txids, strict=True):
            number = self._sequences[client] = numbers[position] if client else 0
            self._model.append(
                (
                    txid,
                    self._clock.now,
                    client,
                    number,
                    JournalTopic(*topics[position % len(topics)]),
                    JournalEntryKind.PUBLISH,
                    bodies[position],
                )
            )
        self._sequences.pop(0, None)

    @rule(
        numbers=st.lists(
            st.tuples(st.integers(4, 6), st.integers(1, 300)), min_size=1, max_size=40, unique=True
        ),
        of_one=st.booleans(),
        topic=st.sampled_from(TOPICS),
        sizes=st.lists(st.sampled_from([0, 1, 300, 250_000]), min_size=1, max_size=3),
        extras=st.sampled_from([b"", pack_extras(b"mark", b"key")]),
        path=st.sampled_from(["one", "one,two"]),
    )
    def append_copies(
        self,
        numbers: list[tuple[int, int]],
        of_one: bool,
        topic: tuple[str, str],
        sizes: list[int],
        extras: bytes,
        path: str,
    ) -> None:
        """What comes from another instance, in any order."""
        numbers = [one for one in numbers if one not in self._copied]
        if of_one:
            numbers = [one for one in numbers if one[0] == 4]
        if not numbers:
            return
        self._copied.update(numbers)
        bodies = [b"c" * sizes[place % len(sizes)] for place in range(len(numbers))]
        data = [body + extras for body in bodies]
        content = EntryColumns(
            0,
            4 if of_one else [client for client, _ in numbers],
            [number for _, number in numbers],
            range(1, len(numbers) + 1),
            99,
            JournalEntryKind.PUBLISH,
            [*range(1, len(numbers)), 0],
            7,
            len(extras),
            list(map(crc32c, data)),
            data,
        )
        handle, origin = (
            self._journal.topic_handle(*topic),
            self._journal.origin_handle("ann", path),
        )
        before, start, flags = self._journal.last_txid, 0, list[int]()
        while start < len(numbers):
            run = self._journal.append_copies({0: (handle, origin)}, content, start)
            assert run.end > start
            flags += each(run.flags, run.end - start)
            start = run.end
        assert self._journal.commit()
        found = list(self._journal.entries(before))
        late = []
        for client, number in numbers:
            known = self._sequences.get(client, 0)
            late.append(number < known)
            self._sequences[client] = max(number, known)
        assert list(map(bool, flags)) == late
        assert [
            (one.client, one.sequence, one.source_txid, one.source, one.sow_key, one.is_late)
            for one in found
        ] == [
            (*numbers[at], at + 1, 99, (at + 1) % len(numbers), late[at])
            for at in range(len(numbers))
        ]
        assert {(one.expiration, one.origin.path, one.correlation_id) for one in found} == {
            (7, path, b"mark" if extras else b"")
        }
        for entry, mark, body in zip(found, numbers, bodies, strict=True):
            now = self._clock.now
            self._model.append(
                (entry.txid, now, *mark, JournalTopic(*topic), JournalEntryKind.PUBLISH, body)
            )

    @rule(step=st.integers(0, 2_000_000))
    def time_passes(self, step: int) -> None:
        self._clock.now += step

    @rule()
    def commit(self) -> None:
        assert self._journal.commit()

    @rule()
    def reopen(self) -> None:
        self._journal.close()
        self._open()
        self._cursors.clear()

    @rule(number=st.integers(0, 9), how=st.sampled_from(["archive", "compress", "remove"]))
    def tidy(self, number: int, how: str) -> None:
        self._journal.commit()
        with suppress(JournalError):
            {
                "archive": self._journal.archive,
                "compress": self._journal.compress,
                "remove": self._journal.remove,
            }[how](number)

    @rule(topics=st.sets(st.sampled_from(TOPICS)) | st.none())
    def start_replay(self, topics: set[tuple[str, str]] | None) -> None:
        """Of the messages on a set of topics, those not delivered yet must come, in order."""
        chosen = None if topics is None else {JournalTopic(*topic) for topic in topics}
        span = self._journal.resolve_bookmark(parse_bookmark("0"))
        cursor = self._journal.replay(span, None if chosen is None else chosen.__contains__)
        self._cursors.append((cursor, []))
        self._wanted = getattr(self, "_wanted", {})
        self._wanted[id(cursor)] = (chosen, self._journal.first_txid)

    @precondition(lambda self: self._cursors)
    @rule(which=st.integers(0, 100), most=st.integers(1, 50))
    def read_on(self, which: int, most: int) -> None:
        cursor, seen = self._cursors[which % len(self._cursors)]
        for entry in cursor.read(most):
            row = next(row for row in self._model if row[0] == entry.txid)
            assert (row[4], row[6]) == (entry.topic, entry.body)
            seen.append(row)
        chosen, _ = self._wanted[id(cursor)]
        txids = {row[0] for row in seen}
        first = seen[0][0] if seen else cursor.position + 1
        expected = {
            row[0]
            for row in self._model
            if row[5] in MESSAGES
            and (chosen is None or row[4] in chosen)
            and max(first, self._journal.first_txid) <= row[0] <= cursor.position
        }
        assert expected <= txids
        assert [row[0] for row in seen] == sorted(txids)

    @invariant()
    def durable_entries_are_there(self) -> None:
        if not hasattr(self, "_journal"):
            return
        cursor = self._journal.replay(LogSpan(0), kinds=EVERYTHING)
        found = []
        while not cursor.is_caught_up:
            found += cursor.read(64, 300_000)
        own = (JournalEntryKind.DEFINE_TOPIC, JournalEntryKind.DEFINE_ORIGIN, JournalEntryKind.RUNS)
        kept = [
            (one.txid, one.timestamp, one.topic, one.kind, one.body)
            for one in found
            if one.kind not in own
        ]
        first, durable = self._journal.first_txid, self._journal.durable_txid
        assert kept == [
            (txid, time, topic, kind, body)
            for txid, time, _, _, topic, kind, body in self._model
            if first <= txid <= durable
        ]
        for client, sequence in self._sequences.items():
            assert self._journal.last_sequence(client) == sequence

    @rule(which=st.integers(0, 1000))
    def bookmarks_and_times_are_found(self, which: int) -> None:
        durable, first = self._journal.durable_txid, self._journal.first_txid
        rows = [row for row in self._model if first <= row[0] <= durable]
        if not rows:
            return
        row = rows[which % len(rows)]
        if row[2]:
            assert self._journal.find(row[2], row[3]) == row[0]
        found = self._journal.first_since(row[1])
        times = [one[0] for one in rows if one[1] >= row[1]]
        assert found <= times[0]
        assert not [one for one in rows if found <= one[0] < times[0]]

    def teardown(self) -> None:
        if hasattr(self, "_journal"):
            self._journal.close()
            assert "DAMAGED" not in self._bench.events()
            assert "TORN_TAIL" not in self._bench.events()
            self._directory.cleanup()


TestLog = LogMachine.TestCase
TestLog.settings = settings(
    max_examples=examples(25),
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def test_a_restart_changes_no_bookmark(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    topic = bench.journal.topic_handle("json", "orders")
    for sequence in range(1, 50):
        bench.journal.append(topic, 7, sequence, b"{}")
        bench.journal.append(topic, 8, 0, b"{}")
    bench.journal.commit()
    before = [entry.bookmark for entry in read_all(bench.journal)]
    bench.journal.close()
    bench = Bench(tmp_path)
    assert [entry.bookmark for entry in read_all(bench.journal)] == before
    assert len(set(before)) == len(before)
    for position in range(0, len(before), 7):
        span = bench.journal.resolve_bookmark(parse_bookmark(before[position]))
        assert [one.bookmark for one in read_all(bench.journal, span)] == before[position + 1 :]
    bench.journal.close()
