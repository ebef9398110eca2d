"""The wall clock of a server is set, forward and back, and processes stand still for a while.

What takes seconds goes on to take seconds: schedules, lifetimes, delays, the downgrade of a
destination. What is recorded has the time that the clock tells, and a replay from a moment gives
what was published since, by the clock as it is set now; a restart changes nothing about that.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from tests.support.clocks import WallClock
from tests.support.long_form import spread
from tests.support.queues import bookmarks, consume, done, elements, put, take
from tests.support.raw import RawPeer
from tests.support.server import RunningServer, free_port, running_server
from tests.support.waiting import wait_until

MINUTE: Final = 60
HOUR: Final = 3600
DAY: Final = 24 * HOUR

SEQUENCES: Final = [
    (0.0, -MINUTE, 0.0),
    (HOUR, 0.0),
    (DAY, 0.0, -HOUR),
    (-DAY, 0.0),
    (0.0, HOUR, -DAY, DAY, 0.0),
]
"""By how many seconds the clock is ahead, at the start and later."""

EVERY_SECOND: Final = """
<Action>
  <On><Module>amps-action-on-schedule</Module><Options><Every>1s</Every></Options></On>
  <Do>{0}</Do>
</Action>
"""

TICK: Final = EVERY_SECOND.format(
    "<Module>amps-action-do-publish-message</Module><Options><Topic>tick</Topic>"
    "<MessageType>json</MessageType><Data>{}</Data></Options>"
)

RECORDS: Final = "".join(
    f"<Topic><Name>{name}</Name><MessageType>json</MessageType><Key>/n</Key>{place}"
    "<Expiration>1s</Expiration></Topic>"
    for name, place in (
        ("recorded", "<FileName>recorded.sow</FileName>"),
        ("stored", "<FileName>stored.sow</FileName>"),
        ("transient", "<Durability>transient</Durability>"),
    )
)

ELEMENTS: Final = elements(
    {"short": {"Expiration": "1s"}, "delayed": {}},
    RECORDS,
    "".join(
        f"<Topic><Name>{name}</Name><MessageType>json</MessageType></Topic>"
        for name in ("recorded", "log")
    ),
)


class Trial:
    """A server whose clock is set.

    Attributes:
        server: see above.
        clock: its wall clock.
        ahead: how far the clock is ahead, in seconds.
        published: when each message of `log` was published, by the true time.
    """

    def __init__(self, clock: WallClock) -> None:
        self.clock = clock
        self.ahead = 0.0
        self.published: list[float] = []
        self._markers = 0
        self.server: RunningServer

    def set(self, ahead: float) -> None:
        """Set the clock."""
        self.ahead = ahead
        self.clock.set(ahead)

    def publish(self) -> None:
        """Publish a message to `log`; the moment before it is known."""
        time.sleep(0.005)
        self.published.append(time.time())
        time.sleep(0.005)
        put(self.server, "log", [len(self.published) - 1])

    def check_timestamps(self) -> None:
        """Check the time that a live message has: the one that the clock tells now."""
        with self.server.log_on("live") as peer:
            peer.subscribe("log", "s", o="timestamp")
            self.publish()
            header, _ = peer.receive()
        told = datetime.strptime(header["ts"], "%Y%m%dT%H%M%S.%fZ").replace(tzinfo=UTC)
        assert abs(told.timestamp() - (self.published[-1] + self.ahead)) < MINUTE / 2

    def check_replays(self) -> None:
        """Check that a replay from any moment gives what was published since."""
        for number, moment in enumerate(self.published):
            wanted = list(range(number, len(self.published)))
            assert self._replay(moment) == wanted

    def _replay(self, moment: float) -> list[int]:
        text = stamp(moment + self.ahead)
        with self.server.log_on("replaying") as peer:
            peer.send({"c": "subscribe", "cid": "s", "sub_id": "s", "t": "log", "bm": text})
            self._markers -= 1
            put(self.server, "log", [self._markers])
            given: list[int] = []
            while not given or given[-1] != self._markers:
                given.append(json.loads(peer.receive()[1])["n"])
        return [one for one in given if one >= 0]

    @contextmanager
    def checked_lifetimes(self) -> Iterator[None]:
        """Check that what lives for a second goes, while the caller does something else."""
        n = len(self.published)
        with self.server.log_on("lives") as peer:
            for topic in ("recorded", "stored", "transient", "in-short"):
                peer.publish(topic, b'{"n":%d}' % n)
            peer.flush()
            yield
            for topic in ("recorded", "stored", "transient", "short"):
                wait_until(partial(is_empty, peer, topic), f"{topic} keeps records")

    @contextmanager
    def checked_delay(self) -> Iterator[None]:
        """Check that a message comes back that was cancelled with a delay, after the next step.

        The caller does something else meanwhile.
        """
        put(self.server, "in-delayed", [len(self.published)])
        with self.server.log_on("delaying") as peer:
            consume(peer, "delayed")
            message = take(peer, 1)
            assert done(peer, "delayed", bm=bookmarks(message), o="cancel,delay=1s") == 1
            self.set(self.ahead)
            yield
            again = take(peer, 1)
            assert again[0][1] == message[0][1]
            assert done(peer, "delayed", bm=bookmarks(again)) == 1

    @contextmanager
    def checked_schedule(self) -> Iterator[None]:
        """Check that an action that runs every second does so, beside what the caller does."""
        with self.server.log_on("ticks") as peer:
            peer.subscribe("tick", "s")
            yield
            take(peer, 2)


def stamp(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y%m%dT%H%M%S.%fZ")


def is_empty(peer: RawPeer, topic: str) -> bool:
    """Return whether a query gives no record."""
    peer.send({"c": "sow", "cid": "q", "t": topic, "a": "completed"})
    records = 0
    while (command := peer.receive()[0]["c"]) != "ack":
        records += command == "sow"
    return records == 0


@pytest.mark.parametrize("sequence", spread(SEQUENCES, 2), ids=str)
def test_a_clock_that_is_set_changes_times_and_nothing_that_takes_time(
    tmp_path: Path, sequence: tuple[float, ...]
) -> None:
    trial = Trial(WallClock(tmp_path / "clock"))
    actions = f"<Actions>{TICK}</Actions>"
    trial.set(sequence[0])
    with running_server(tmp_path, elements=ELEMENTS + actions, prepare=trial.clock) as trial.server:
        trial.check_timestamps()
        for ahead in sequence[1:]:
            trial.set(ahead)
            trial.check_timestamps()
            with trial.checked_schedule(), trial.checked_lifetimes(), trial.checked_delay():
                pass  # each of them waits for a second
        trial.check_replays()
        trial.server.stop()
    with running_server(tmp_path, elements=ELEMENTS + actions, prepare=trial.clock) as trial.server:
        trial.check_timestamps()
        with trial.checked_lifetimes():
            trial.check_replays()


@pytest.mark.parametrize("ahead", [HOUR, DAY])
def test_a_clock_that_is_right_after_a_restart(tmp_path: Path, ahead: float) -> None:
    trial = Trial(WallClock(tmp_path / "clock"))
    trial.set(ahead)
    with running_server(tmp_path, elements=ELEMENTS, prepare=trial.clock) as trial.server:
        trial.publish()
        with trial.server.log_on("lives") as peer:
            for topic in ("recorded", "stored", "in-short"):
                peer.publish(topic, b'{"n":0}')
            peer.flush()
        trial.server.process.kill()
        trial.server.process.wait()
    trial.set(0.0)
    trial.published.clear()
    with running_server(tmp_path, elements=ELEMENTS, prepare=trial.clock) as trial.server:
        trial.check_timestamps()
        trial.check_replays()
        with trial.server.log_on("lives") as peer:
            for topic in ("recorded", "stored", "short"):
                wait_until(partial(is_empty, peer, topic), f"{topic} keeps records")


@pytest.mark.parametrize("ahead", [-HOUR, HOUR])
def test_a_clock_that_is_set_does_not_keep_a_destination_from_being_downgraded(
    tmp_path: Path, ahead: float
) -> None:
    clock = WallClock(tmp_path / "clock")
    clock.set(0.0)
    downgrade = EVERY_SECOND.format(
        "<Module>amps-action-do-downgrade-replication</Module><Options><Age>1s</Age></Options>"
    )
    destination = f"""
      <Replication><Destination><Name>away</Name><SyncType>sync</SyncType>
      <Topic><Name>log</Name><MessageType>json</MessageType></Topic>
      <Transport><Type>amps-replication</Type><InetAddr>127.0.0.1:{free_port()}</InetAddr></Transport>
      </Destination></Replication>"""
    given = f"{ELEMENTS}{destination}<Actions>{downgrade}</Actions>"
    with (
        running_server(tmp_path, elements=given, prepare=clock) as server,
        server.log_on("publisher") as peer,
    ):
        clock.set(ahead)
        peer.publish("log", b'{"n":0}', s=1, a="persisted")
        assert peer.receive_header()["a"] == "persisted"


PAUSE_SECONDS: Final = 6.0
"""Longer than the heartbeats and leases of these tests last."""


def pause(server: RunningServer, meanwhile: Callable[[], None]) -> None:
    """Let a server stand still; something happens at the beginning of that."""
    os.kill(server.process.pid, signal.SIGSTOP)
    try:
        meanwhile()
        time.sleep(PAUSE_SECONDS)
    finally:
        os.kill(server.process.pid, signal.SIGCONT)


def test_what_came_in_a_pause_is_read_before_silence_and_leases_are_judged(tmp_path: Path) -> None:
    given = elements({"q": {"LeasePeriod": "5s"}})
    with (
        running_server(tmp_path, elements=given) as server,
        server.log_on("beating") as beating,
        server.log_on("first") as first,
        server.log_on("second") as second,
    ):
        assert beating.ask({"c": "heartbeat", "o": "start,1", "a": "processed"})["status"]
        stop = threading.Event()

        def beat() -> None:
            while not stop.wait(0.3):
                beating.send({"c": "heartbeat", "o": "beat"})

        thread = threading.Thread(target=beat)
        thread.start()
        put(server, "in-q", range(5))
        consume(first, "q")
        marks = bookmarks(take(first, 5))
        consume(second, "q")
        acknowledge = {"c": "sow_delete", "cid": "d", "t": "q", "a": "stats", "bm": marks}
        pause(server, lambda: first.send(acknowledge))
        assert first.receive_header()["records_deleted"] == 5
        left = {"c": "unsubscribe", "cid": "u", "sub_id": "s", "a": "processed"}
        assert first.ask(left)["status"] == "success"
        put(server, "in-q", [5])
        assert take(second, 1)[0][1] == b'{"n":5}', "nothing is given to another consumer"
        stop.set()
        thread.join()
        assert "Heartbeats have stopped" not in server.log()
        assert beating.ask({"c": "flush", "cid": "f", "a": "completed"})
