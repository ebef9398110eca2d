"""What waits for slow clients, against a model: a stream that loses nothing until it is cut."""

from __future__ import annotations

import io
import tempfile
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amperage.wire.frame_slices import SharedFrames, framed_shared
from server.topics.subscriptions.limits.client_limits import ClientLimits
from server.topics.subscriptions.limits.slow_clients import ClientBacklog, ClientPool
from tests.engine.support import RecordingLog, SimulatedClock
from tests.support.frame_slices import bodies_in_stream

ROOMY = ClientLimits(
    memory_bytes=10**9, disk_bytes=10**9, directory="/tmp", client_share=1.0, max_age_s=None
)


class Client:
    """A client whose socket takes a number of writes, and then stalls."""

    def __init__(
        self, pool: ClientPool, clock: SimulatedClock, log: RecordingLog, name: str
    ) -> None:
        self.pieces: list[bytes] = []
        self.room = 0
        self.is_connected = True
        self.events: list[str] = []
        self.backlog = ClientBacklog(
            pool,
            clock,
            log,
            lambda: name,
            self._write,
            self._drop,
            self.events.append,
            self._on_caught_up,
        )

    @property
    def taken(self) -> bytes:
        """What the socket has taken."""
        return b"".join(self.pieces)

    def give_back(self, count: int) -> None:
        """Stall, and give back the last writes."""
        self.room = 0
        self.backlog.pause_writing()
        pieces = self.pieces[-count:]
        if self.backlog.take_back([*pieces]):
            del self.pieces[-count:]

    def read(self, writes: int) -> None:
        """Make room for some writes."""
        self.room += writes
        if self.room > 0 and self.is_connected:
            self.backlog.resume_writing()

    def _write(self, data: bytes | memoryview | SharedFrames) -> None:
        self.pieces.append(bytes(data))
        self.room -= 1
        if self.room <= 0:
            self.backlog.pause_writing()

    def _drop(self) -> None:
        self.is_connected = False

    def _on_caught_up(self) -> None:
        assert not self.backlog.is_behind
        self.events.append("caught up")


@settings(deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("send"), st.sampled_from([1, 1000, 300_000, 1_700_000])),
            st.tuples(st.just("share"), st.sampled_from([20_000, 80_000])),
            st.tuples(st.just("read"), st.sampled_from([1, 2, 3, 1000])),
            st.tuples(st.just("back"), st.sampled_from([1, 3])),
            st.tuples(st.just("offline"), st.just(0)),
            st.tuples(st.just("turn"), st.just(0)),
        ),
        max_size=25,
    )
)
def test_bytes_arrive_in_order_and_none_is_lost(steps: list[tuple[str, int]]) -> None:
    """Through memory, through a file, in slices, with stalls anywhere."""
    clock = SimulatedClock()
    client = Client(ClientPool(ROOMY), clock, RecordingLog(), "one")
    client.backlog.pause_writing()
    sent = b""
    for number, (step, size) in enumerate(steps):
        if step == "send":
            data = bytes([number % 251]) * size
            sent += data
            client.backlog.send(data)
        elif step == "share":
            bodies = bodies_in_stream([bytes([number % 251]) * (size // 10)] * 10)
            frames = framed_shared(bodies, b"{", b"}")
            assert isinstance(frames, SharedFrames)
            sent += bytes(frames)
            client.backlog.send(frames)
        elif step == "read":
            client.read(size)
        elif step == "back":
            client.give_back(size)
        elif step == "turn":
            clock.turn()
        elif client.backlog.has_pending_bytes:
            client.backlog.go_offline()
    while client.backlog.is_behind:
        client.read(1000)
        clock.turn()
    assert client.taken == sent
    assert client.events[-1] == "caught up"
    assert (client.backlog.memory_used, client.backlog.disk_used) == (0, 0)


def test_a_socket_that_takes_everything_gets_a_piece_per_turn() -> None:
    """Other clients are served while a large body is written to one that reads meanwhile."""
    clock = SimulatedClock()
    client = Client(ClientPool(ROOMY), clock, RecordingLog(), "one")
    client.room = 1_000_000
    client.backlog.send(b"x" * 20_000_000)
    client.backlog.send(b"y")  # waits for its turn
    sizes = [0, len(client.taken)]
    while client.backlog.is_behind:
        clock.turn()
        sizes.append(len(client.taken))
    assert max(after - before for before, after in pairwise(sizes)) <= 1_500_000
    assert client.taken == b"x" * 20_000_000 + b"y"
    assert client.events == ["caught up"]


def test_the_largest_is_offlined_and_then_disconnected(tmp_path: Path) -> None:
    """When a pool is used up, it is not the latest but the largest client that pays."""
    limits = ClientLimits(
        memory_bytes=1000,
        disk_bytes=2000,
        directory=str(tmp_path),
        client_share=1.0,
        max_age_s=None,
    )
    pool, clock, log = ClientPool(limits), SimulatedClock(), RecordingLog()
    large, small = (Client(pool, clock, log, name) for name in ("large", "small"))
    for client in (large, small):
        client.backlog.pause_writing()
    large.backlog.send(b"x" * 800)
    small.backlog.send(b"x" * 300)
    assert (large.backlog.disk_used, small.backlog.memory_used) == (800, 300)
    large.backlog.send(b"x" * 1300)
    assert (large.is_connected, small.is_connected) == (False, True)
    assert [entry for entry in log.entries if entry[0].startswith("70")] == [
        ("70-0011", {"client": "large"}),
        ("70-0004", {"client": "large"}),
    ]
    assert (pool.memory_used, pool.disk_used) == (300, 0)


def test_what_waits_goes_to_the_file_a_piece_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts as if it were there, so that nobody else has to make room for it."""
    file = io.BytesIO()
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: file)
    clock = SimulatedClock()
    client = Client(ClientPool(ROOMY), clock, RecordingLog(), "one")
    client.backlog.pause_writing()
    for _ in range(10):
        client.backlog.send(b"x" * 1_000_000)
    client.backlog.go_offline()
    assert (client.backlog.memory_used, client.backlog.disk_used) == (0, 10_000_000)
    sizes = [0]
    while sizes[-1] < 10_000_000:
        clock.turn()
        sizes.append(len(file.getbuffer()))
        assert 0 < sizes[-1] - sizes[-2] <= 2_000_000


def test_one_client_may_use_its_share_only(tmp_path: Path) -> None:
    """Over its share it is treated as if everything were used up."""
    limits = ClientLimits(
        memory_bytes=1000,
        disk_bytes=2000,
        directory=str(tmp_path),
        client_share=0.5,
        max_age_s=None,
    )
    client = Client(ClientPool(limits), SimulatedClock(), RecordingLog(), "one")
    client.backlog.pause_writing()
    client.backlog.send(b"x" * 500)
    assert client.backlog.memory_used == 500
    client.backlog.send(b"x")
    assert (client.backlog.memory_used, client.backlog.disk_used) == (0, 501)
    assert client.is_connected
    client.backlog.send(b"x" * 500)
    assert not client.is_connected


@pytest.mark.parametrize("reads", [False, True])
def test_bytes_may_wait_for_a_while_only(reads: bool) -> None:
    """The oldest byte counts; a client that reads in time stays, however much there is."""
    limits = ClientLimits(
        memory_bytes=10**9, disk_bytes=10**9, directory="/tmp", client_share=1.0, max_age_s=10.0
    )
    clock = SimulatedClock()
    client = Client(ClientPool(limits), clock, RecordingLog(), "one")
    client.backlog.pause_writing()
    for _ in range(100):
        client.backlog.send(b"x")
        clock.advance(1)
        if reads:
            client.read(1)
    assert client.is_connected == reads


def test_a_directory_that_is_not_there_costs_the_slow_client_only() -> None:
    """The entry says why; the client is disconnected."""
    limits = ClientLimits(
        memory_bytes=10,
        disk_bytes=10**9,
        directory="/no/such/place",
        client_share=1.0,
        max_age_s=None,
    )
    log = RecordingLog()
    client = Client(ClientPool(limits), SimulatedClock(), log, "one")
    client.backlog.pause_writing()
    client.backlog.send(b"x" * 11)
    assert not client.is_connected
    assert "70-0013" in [message_id for message_id, _ in log.entries]
