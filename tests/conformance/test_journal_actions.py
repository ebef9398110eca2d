"""Journals are archived, compressed and removed by actions, while the transaction log is in use."""

from __future__ import annotations

import os
import resource
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from tests.support.old_journals import (
    PER_FILE,
    fill,
    journals,
    make_old,
    number_of,
    on_topic,
    tell,
)
from tests.support.raw import RawPeer
from tests.support.server import RunningServer, running_server
from tests.support.waiting import LOOK_SECONDS, wait_until


def elements(archive: Path) -> str:
    """A log with small files, a topic with records, and an action for each verb."""
    return f"""
      <SOW>
        <Topic>
          <Name>records</Name><MessageType>json</MessageType><Key>/id</Key>
          <FileName>records.sow</FileName>
        </Topic>
      </SOW>
      <TransactionLog>
        <JournalDirectory>journal</JournalDirectory>
        <JournalArchiveDirectory>{archive}</JournalArchiveDirectory>
        <JournalSize>10MB</JournalSize>
        <PreallocatedJournalFiles>1</PreallocatedJournalFiles>
        <FlushInterval>1ms</FlushInterval>
        <Topic><Name>orders|records</Name><MessageType>json</MessageType></Topic>
      </TransactionLog>
      <Actions>{on_topic("archive")}{on_topic("compress")}{on_topic("remove")}</Actions>
    """


def replay(server: RunningServer, name: str = "reader") -> list[int]:
    """The numbers of all messages in the log, which come without a gap."""
    with server.log_on(name) as peer:
        peer.send({"c": "subscribe", "sub_id": "1", "t": "orders", "bm": "0", "a": "completed"})
        numbers: list[int] = []
        while True:
            header, message = peer.receive()
            if header["c"] == "ack":
                return numbers
            numbers.append(number_of(message))


def test_a_replay_spans_archived_compressed_and_current_files(
    tmp_path: Path, archive: Path
) -> None:
    """During the work, after it, after a restart; what is removed is gone, and nothing else."""
    directory = tmp_path / "journal"
    last = 3 * PER_FILE + 3
    with running_server(tmp_path, elements=elements(archive)) as server:
        with server.log_on("p") as peer:
            peer.publish("records", b'{"id":1}')
            peer.flush()
        fill(server, 1, last)
        make_old(directory / "test-instance.0000000000.journal")
        with server.log_on("slow") as slow:
            slow.send({"c": "subscribe", "sub_id": "1", "t": "orders", "bm": "0"})
            seen = [number_of(slow.receive()[1]) for _ in range(2)]
            tell(server, "archive", "1d")
            wait_until(lambda: journals(archive) == {"00.journal"})
            wait_until(lambda: "00.journal" not in journals(directory))
            seen += [number_of(slow.receive()[1]) for _ in range(2)]
            make_old(directory / "test-instance.0000000001.journal")
            tell(server, "compress", "1d")
            wait_until(lambda: journals(archive) == {"00.journal.gz"})
            wait_until(lambda: {"01.journal.gz"} <= journals(directory))
            assert "02.journal" in journals(directory)
            seen += [number_of(slow.receive()[1]) for _ in range(last - 4)]
            assert seen == list(range(1, last + 1))
        assert replay(server) == seen
        assert server.logs(
            "Journal file journal/test-instance.0000000000.journal has been archived"
        )
        assert server.stop() == 0
    with running_server(tmp_path, elements=elements(archive)) as server:
        assert replay(server) == seen
        tell(server, "remove", "1d")
        wait_until(lambda: journals(archive) == set())
        wait_until(
            lambda: (
                {"02.journal"} <= journals(directory) <= {"02.journal", "03.journal", "04.journal"}
            )
        )
        rest = replay(server)
        assert rest == list(range(rest[0], last + 1))
        assert rest[0] > PER_FILE
        server.stop(signal.SIGKILL)
    with running_server(tmp_path, elements=elements(archive)) as server:
        assert replay(server) == rest
        with server.connect() as peer:  # whose messages are removed is not forgotten
            assert peer.log_on("filler")["s"] == last
            assert records(peer) == [b'{"id":1}']  # nor are records


@dataclass(frozen=True)
class Pause:
    """Prepares a process: moving a file to a directory waits at its end as long as there is a sign.

    Attributes:
        sign: a file.
        directory: where others are moved to.
    """

    sign: Path
    directory: Path

    def __call__(self) -> None:
        """Watch the calls of this process from now on."""
        replace = os.replace

        def replace_later(old: Path, new: Path) -> None:
            while new.parent == self.directory and self.sign.exists():
                time.sleep(LOOK_SECONDS)
            replace(old, new)

        os.replace = replace_later  # type: ignore[assignment]  # called with two paths


def test_a_file_is_marked_while_it_is_moved(tmp_path: Path, archive: Path) -> None:
    """It is as old as it was, wherever it is when that is looked up."""
    pause = tmp_path / "pause"
    prepare = Pause(pause, archive)
    with running_server(tmp_path, elements=elements(archive), prepare=prepare) as server:
        fill(server, 1, PER_FILE + 3)
        make_old(tmp_path / "journal" / "test-instance.0000000000.journal")
        pause.touch()
        tell(server, "archive", "1d")
        wait_until(lambda: any(archive.iterdir()))
        tell(server, "compress", "1d")
        tell(server, "unheard", "1d")  # the action before it has begun by now
        pause.unlink()
        wait_until(lambda: journals(archive) == {"00.journal.gz"})


def test_what_somebody_needs_is_removed_later(tmp_path: Path, archive: Path) -> None:
    directory = tmp_path / "journal"
    with running_server(tmp_path, elements=elements(archive)) as server:
        with server.log_on("paused") as paused:
            assert paused.subscribe("orders", "1", bm="0", o="pause")["status"] == "success"
            fill(server, 1, 2 * PER_FILE + 3)
            tell(server, "remove", "0s")
            assert server.logs("0000000000.journal cannot be removed yet: it is still needed from")
            assert server.logs("29-0103 remove marked")
            tell(server, "compress", "0s")  # which waits for nobody
            wait_until(lambda: {"00.journal.gz", "01.journal.gz"} <= journals(directory))
        wait_until(lambda: not {"00.journal.gz", "01.journal.gz"} & journals(directory))
        assert server.logs("is still needed", 1)
        rest = replay(server)
        assert rest == list(range(rest[0], 2 * PER_FILE + 4))


def test_what_cannot_be_done_is_one_entry(tmp_path: Path, archive: Path) -> None:
    """An age that is none, an archive that is full, a file that is gone: the server goes on."""
    directory = tmp_path / "journal"
    last = 2 * PER_FILE + 3
    with running_server(tmp_path, elements=elements(archive)) as server:
        fill(server, 1, last)
        tell(server, "archive", "LastThursday")
        assert server.logs("failed: Age: 'LastThursday' is not an interval")
        limits = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (5 << 20, -1))
        tell(server, "archive", "0s")
        assert server.logs("A journal file could not be archived")
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, limits)
        assert server.logs("1D-0012", 1)
        assert not [path for path in archive.iterdir() if path.suffix == ".tmp"]
        assert {"00.journal", "01.journal"} <= journals(directory)
        tell(server, "archive", "0s")
        wait_until(lambda: journals(archive) == {"00.journal", "01.journal"})
        assert replay(server) == list(range(1, last + 1))
        (archive / "test-instance.0000000001.journal").unlink()
        tell(server, "compress", "0s")
        assert server.logs("0000000001.journal: cannot be compressed: ")
        with server.log_on("late") as late, server.log_on("live") as live:
            assert late.subscribe("orders", "1", bm="0")["status"] == "success"
            assert live.subscribe("orders", "1", bm="0|1|")["status"] == "success"
            fill(server, last + 1, last + 2)
            assert [number_of(live.receive()[1]) for _ in range(2)] == [last + 1, last + 2]
            there = range(1, PER_FILE)  # more or less what is in the first file
            assert [number_of(late.receive()[1]) for _ in there] == list(there)
            assert server.logs("1D-0013"), "what is gone is waited for, and not passed over"


def test_a_kill_loses_nothing(tmp_path: Path, archive: Path) -> None:
    """Whatever is being done to files when the process is killed."""
    last = 0
    for verb, delay in (("archive", 0.01), ("compress", 0.2), ("remove", 0.003)):
        with running_server(tmp_path, elements=elements(archive)) as server:
            assert replay(server) == list(range(1, last + 1))
            fill(server, last + 1, last + PER_FILE + 3)
            last += PER_FILE + 3
            with server.log_on("operator") as peer:
                peer.publish(verb, b"0s")
                time.sleep(delay)
                server.stop(signal.SIGKILL)
    with running_server(tmp_path, elements=elements(archive)) as server:
        rest = replay(server)
        assert rest == list(range(rest[0], last + 1))
        tell(server, "remove", "0s")
        wait_until(lambda: len(journals(archive) | journals(tmp_path / "journal")) <= 2)
        assert server.stop() == 0


def records(peer: RawPeer) -> list[bytes]:
    """The records of the topic that has some."""
    peer.send({"c": "sow", "cid": "q", "t": "records", "a": "completed"})
    found: list[bytes] = []
    while True:
        header, message = peer.receive()
        if header["c"] == "ack":
            return found
        if header["c"] == "sow":
            start = message.index(b'{"id"')
            found.append(message[start:])
