"""Files that are cut as a power failure cuts them: zeros from some place on, or nothing at all.

A server works, is killed, and its files are kept. For each cut a copy of them is damaged, and a
server started from it: what it then has is what the first one had acknowledged.
"""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.recovery.test_set_back import delete, publish, records_of
from tests.support.clocks import WallClock
from tests.support.long_form import spread
from tests.support.moments import now
from tests.support.raw import QUICK_ACKS, RawPeer
from tests.support.server import RunningServer, free_port, running_server
from tests.support.sow import query
from tests.support.sow_entries import sow_entries
from tests.support.waiting import wait_until

RECORDED: Final = """
<SOW>
  <Topic>
    <Name>h</Name><MessageType>json</MessageType><Key>/id</Key><FileName>h.sow</FileName>
    {history}
  </Topic>
</SOW>
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>^h$</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""
HISTORY: Final = "<History><Window>1d</Window><Granularity>0s</Granularity></History>"


def copy_with(source: Path, target: Path, name: str, content: bytes) -> None:
    """Copy the files of a server, one of them with another content."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.log", "*.xml"))
    (target / name).write_bytes(content)


def states(server: RunningServer, bookmarks: Sequence[str]) -> list[dict[str, int]]:
    """Return the records of the topic at each of some moments, and now."""
    with server.log_on("reader") as peer:
        past = [records_of(peer, "h", bm=bookmark) for bookmark in bookmarks]
        return [*past, records_of(peer, "h")]


@pytest.mark.parametrize("history", [HISTORY, ""])
def test_a_sow_file_is_cut_between_the_entries_of_a_change(tmp_path: Path, history: str) -> None:
    """The log completes the change, also a deletion of several records, and history knows it."""
    elements = RECORDED.format(history=history)
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    whole.mkdir()
    moments: list[str] = []
    expected: list[dict[str, int]] = []
    with (
        running_server(whole, elements=elements) as server,
        server.log_on("p", o=QUICK_ACKS) as peer,
    ):
        state: dict[str, int] = {}
        for sequence, key in enumerate("abcda", 1):
            publish(peer, "h", sequence, key, sequence)
            state[key] = sequence
        moments.append(now())
        expected.append(dict(state))
        delete(peer, "h", 6, "/id IN ('a', 'b', 'c')")
        moments.append(now())
        expected.append({"d": 4})
        publish(peer, "h", 7, "a", 7)
        publish(peer, "h", 8, "d", 8)
        server.stop(signal.SIGKILL)
    asked = moments if history else []
    wanted = [*(expected if history else []), {"a": 7, "d": 8}]
    content = (whole / "h.sow").read_bytes()
    places, end = sow_entries(whole / "h.sow")
    for place in places[4:]:
        copy_with(whole, cut, "h.sow", content[:place] + bytes(end - place) + content[end:])
        with running_server(cut, elements=elements) as server:
            assert states(server, asked) == wanted, place
            server.stop()


CHAINED: Final = """
<Modules>
  <Module><Name>chain</Name><Library>libamps_id_chaining_key_generator.so</Library></Module>
</Modules>
<SOW>
  <Topic>
    <Name>h</Name><MessageType>json</MessageType><FileName>h.sow</FileName>
    <KeyGenerator><Module>chain</Module>
      <Options><Key>/id</Key><Key>/parent</Key><FileName>h.ids</FileName></Options>
    </KeyGenerator>
  </Topic>
</SOW>
{log}
"""
LOG: Final = RECORDED[RECORDED.index("<TransactionLog>") :]
CHAINS: Final = 4
LINKS: Final = 4
"""Ids that each chain has."""


def link(chain: int, place: int) -> dict[str, object]:
    """A message of a chain, which follows the one before."""
    body: dict[str, object] = {"id": f"{chain}-{place}", "value": place}
    return body if place == 0 else body | {"parent": f"{chain}-{place - 1}"}


def publish_links(peer: RawPeer, place: int) -> None:
    """Publish a message to each chain, and wait until they are safe."""
    for chain in range(CHAINS):
        peer.send(
            {"c": "publish", "t": "h", "a": "persisted"}, json.dumps(link(chain, place)).encode()
        )
        assert peer.receive_header()["status"] == "success"


def zeroed(content: bytes, size: int) -> bytes:
    """Content with zeros at its end."""
    return content[:-size] + bytes(size)


CHAIN_CUTS: Final[dict[str, tuple[Callable[[bytes], bytes], tuple[str, ...], int]]] = {
    "nothing": (lambda content: content, (), 0),
    "an_entry_is_missing": (lambda content: content[:-19], ("15-0031",), 1),
    "half_an_entry_is_missing": (lambda content: content[:-10], ("15-0029", "15-0031"), 1),
    "most_is_missing": (lambda content: content[:40], ("15-0029", "15-0031"), 15),
    "zeros_at_the_end": (lambda content: zeroed(content, 70), ("15-0029", "15-0031"), 4),
    "zeros_behind_the_end": (lambda content: content + bytes(500), ("15-0029",), 0),
    "nothing_but_zeros": (lambda content: bytes(len(content)), ("15-0029", "15-0031"), 16),
    "empty": (lambda _: b"", ("15-0031",), 16),
    "a_flipped_bit": (
        lambda content: content[:45] + b"?" + content[46:], ("15-0030", "15-0031"), 15
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def chained_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the files of a server that was killed when all messages were acknowledged."""
    directory = tmp_path_factory.mktemp("chained")
    with (
        running_server(directory, elements=CHAINED.format(log=LOG)) as server,
        server.log_on("p", o=QUICK_ACKS) as peer,
    ):
        for place in range(LINKS):
            publish_links(peer, place)
        server.stop(signal.SIGKILL)
    return directory


@pytest.mark.parametrize("cut", spread(tuple(CHAIN_CUTS), 5))
def test_chained_ids_come_back_from_the_log(chained_files: Path, tmp_path: Path, cut: str) -> None:
    """Chains go on with the records that they had, and the log says what was missing."""
    change, said, lost = CHAIN_CUTS[cut]
    directory = tmp_path / "cut"
    copy_with(chained_files, directory, "h.ids", change((chained_files / "h.ids").read_bytes()))
    for place in (LINKS, LINKS + 1):
        with running_server(directory, elements=CHAINED.format(log=LOG)) as server:
            with server.log_on("p", o=QUICK_ACKS) as peer:
                publish_links(peer, place)
                expected = {f"{chain}-{place}": place for chain in range(CHAINS)}
                assert records_of(peer, "h") == expected
            lines = server.log().splitlines()
            found = [
                one for line in lines for one in ("15-0029", "15-0030", "15-0031") if one in line
            ]
            assert found == list(said if place == LINKS else ())
            if lost and place == LINKS:
                assert server.logs(
                    f"{lost} chained ids were missing in h.ids and have been added from the trans"
                )
            server.stop(signal.SIGKILL)


def test_chained_ids_come_back_from_the_records(tmp_path: Path) -> None:
    """Of a topic that is not in the log: those of the last message of each chain."""
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    whole.mkdir()
    elements = CHAINED.format(log="")
    with (
        running_server(whole, elements=elements) as server,
        server.log_on("p", o=QUICK_ACKS) as peer,
    ):
        for place in range(LINKS):
            publish_links(peer, place)
        server.stop(signal.SIGKILL)
    copy_with(whole, cut, "h.ids", zeroed((whole / "h.ids").read_bytes(), 70))
    with running_server(cut, elements=elements) as server:
        with server.log_on("p", o=QUICK_ACKS) as peer:
            publish_links(peer, LINKS)
            expected = {f"{chain}-{LINKS}": LINKS for chain in range(CHAINS)}
            assert records_of(peer, "h") == expected
        assert server.logs("4 chained ids were missing in h.ids and have been added from the rec")
        server.stop()


SERVED: Final = """
<Admin><InetAddr>127.0.0.1:{admin}</InetAddr><FileName>stats.db</FileName><Interval>1s</Interval></Admin>
<SOW>
  <Topic>
    <Name>h</Name><MessageType>json</MessageType><Key>/id</Key><FileName>h.sow</FileName>
  </Topic>
  <Queue><Name>jobs</Name><MessageType>json</MessageType></Queue>
</SOW>
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>^(h|jobs|events)$</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""
SIDE_FILE_CUTS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "removed": lambda _: b"",
    "a_byte_is_missing": lambda content: content[:-1],
    "half_is_missing": lambda content: content[: len(content) // 2],
    "zeros_at_the_end": lambda content: zeroed(content, min(16, len(content))),
    "zeros_in_the_second_half": lambda content: zeroed(content, len(content) // 2),
    "nothing_but_zeros": lambda content: bytes(len(content)),
}


@pytest.fixture(scope="module")
def served_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the files of a server with several journals, a queue and statistics, after a kill."""
    directory = tmp_path_factory.mktemp("served")
    elements = SERVED.format(admin=free_port())
    with (
        running_server(directory, elements=elements) as server,
        server.log_on("p", o=QUICK_ACKS) as peer,
    ):
        for number in range(1, 9):
            publish(peer, "h", number, str(number % 3), number)
        for number in range(9, 14):
            publish(peer, "jobs", number, "j", number)
        for number in range(14, 27):  # more than one journal takes
            head = {"c": "publish", "t": "events", "s": number, "a": "persisted"}
            assert peer.ask(head, b'{"pad":"%b"}' % (b"x" * 1_000_000))["status"] == "success"
        with server.log_on("c") as consumer:
            consumer.subscribe("jobs", "1")
            for _ in range(2):
                done = {"c": "sow_delete", "t": "jobs", "bm": consumer.receive()[0]["bm"]}
                consumer.send(done)
            consumer.receive()  # which comes when the second is done
        publish(peer, "events", 27, "e", 27)
        index = directory / "journal" / "test-instance.0000000000.index.gz"
        wait_until(index.exists, lambda: "the first journal has no index")
        wait_until((directory / "stats.db").exists, lambda: "there are no statistics")
        server.stop(signal.SIGKILL)
    return directory


@pytest.mark.parametrize("cut", SIDE_FILE_CUTS)
def test_files_beside_the_log_are_made_again(served_files: Path, tmp_path: Path, cut: str) -> None:
    """Tables of publishers, queues and indexes, all of them at once: the log knows it all."""
    directory = tmp_path / "cut"
    shutil.copytree(served_files, directory, ignore=shutil.ignore_patterns("*.log", "*.xml"))
    files = [
        path
        for path in (*directory.glob("journal/*"), *directory.glob("stats.db*"))
        if path.suffix != ".journal" and path.is_file()
    ]
    names = {path.name.removeprefix("test-instance.") for path in files}
    assert {"clients.ack", "queues.ack", "0000000000.index.gz", "stats.db"} <= names
    for path in files:
        content = SIDE_FILE_CUTS[cut](path.read_bytes())
        if content:
            path.write_bytes(content)
        else:
            path.unlink()
    with running_server(directory, elements=SERVED.format(admin=free_port())) as server:
        with server.connect() as peer:
            assert peer.log_on("p", o=QUICK_ACKS)["s"] == 27
            assert records_of(peer, "h") == {"1": 7, "2": 8, "0": 6}
            assert len(query(peer, "jobs").messages) == 3
            publish(peer, "h", 28, "0", 28)
        assert server.stop() == 0


KEPT: Final = """
<SOW>
  <Topic>
    <Name>h</Name><MessageType>json</MessageType><Key>/id</Key><FileName>h.sow</FileName>
  </Topic>
</SOW>
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>^(h|events)$</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
<Actions>
  <Action>
    <On><Module>amps-action-on-signal</Module><Options><Signal>SIGUSR1</Signal></Options></On>
    <Do><Module>amps-action-do-remove-journal</Module><Options><Age>0s</Age></Options></Do>
  </Action>
</Actions>
"""
REPLICATION: Final = """
<Transport><Name>r</Name><Type>amps-replication</Type><InetAddr>127.0.0.1:{port}</InetAddr></Transport>
"""
NOTES: Final = ("removed.ack", "steps.ack", "replication.ack")
"""Notes beside the log that are not in it: without them, less is known."""


@contextmanager
def keeping_server(directory: Path, clock: WallClock) -> Iterator[RunningServer]:
    """Run a server that replicates, removes journals, and goes by a clock."""
    transports = REPLICATION.format(port=free_port())
    with running_server(directory, elements=KEPT, transports=transports, prepare=clock) as server:
        yield server


@pytest.fixture(scope="module")
def noted_files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, WallClock]:
    """Return the files of a server that had its clock set and a journal removed; and the clock."""
    directory = tmp_path_factory.mktemp("noted")
    clock = WallClock(tmp_path_factory.mktemp("clock") / "ahead")
    clock.set(0.0)
    with (
        keeping_server(directory, clock) as server,
        server.log_on("p", o=QUICK_ACKS) as peer,
    ):
        publish(peer, "h", 1, "a", 1)
        for number in range(2, 14):  # more than one journal takes
            head = {"c": "publish", "t": "events", "s": number, "a": "persisted"}
            assert peer.ask(head, b'{"pad":"%b"}' % (b"x" * 1_000_000))["status"] == "success"
        clock.set(3600.0)
        publish(peer, "h", 14, "b", 14)
        server.process.send_signal(signal.SIGUSR1)
        for name in NOTES:
            path = directory / "journal" / f"test-instance.{name}"
            wait_until(path.exists, lambda: f"not all of {NOTES} are there")
        first = directory / "journal" / "test-instance.0000000000.journal"
        wait_until(lambda: not first.exists(), lambda: "the first journal has not been removed")
        publish(peer, "h", 15, "c", 15)
        server.stop(signal.SIGKILL)
    return directory, clock


@pytest.mark.parametrize("name", NOTES)
@pytest.mark.parametrize("cut", spread(tuple(SIDE_FILE_CUTS), 2))
def test_without_a_note_beside_the_log_nothing_of_it_is_lost(
    noted_files: tuple[Path, WallClock], tmp_path: Path, name: str, cut: str
) -> None:
    """Records, messages and numbers of publishers are there, and work goes on; twice."""
    whole, clock = noted_files
    directory = tmp_path / "cut"
    shutil.copytree(whole, directory, ignore=shutil.ignore_patterns("*.log", "*.xml"))
    path = directory / "journal" / f"test-instance.{name}"
    content = SIDE_FILE_CUTS[cut](path.read_bytes())
    if content:
        path.write_bytes(content)
    else:
        path.unlink()
    records = {"a": 1, "b": 14, "c": 15}
    for number in (16, 17):
        with keeping_server(directory, clock) as server:
            with server.connect() as peer:
                assert peer.log_on("p", o=QUICK_ACKS)["s"] == number - 1
                publish(peer, "h", number, "d", number)
                records["d"] = number
                assert records_of(peer, "h") == records
                peer.subscribe("h", "s", bm="0")
                bodies = [json.loads(peer.receive()[1]) for _ in range(number - 13)]
                assert [body["id"] for body in bodies] == ["b", "c", "d", "d"][: number - 13]
            assert server.stop() == 0
