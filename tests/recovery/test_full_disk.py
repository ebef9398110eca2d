"""A disk is full, broken, or gone: publishers are told, nobody else is concerned, nothing is lost.

See `tests/support/small_disk.py` for the disk.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from tests.recovery.large_messages import ELEMENTS, Publisher, log_on, replay
from tests.support.server import RunningServer, running_server, why_no_start
from tests.support.small_disk import small_disk
from tests.support.sow import CHAINED_TOPIC, CHAINING, query
from tests.support.waiting import wait_until

CHAINED: Final = f"<SOW>{CHAINED_TOPIC}</SOW>{CHAINING}"


def others_work(server: RunningServer) -> None:
    """Topics that need no disk are as before."""
    with server.log_on("bystander") as peer:
        assert peer.subscribe("plain", "s")["status"] == "success"
        peer.publish("plain", b"here")
        assert peer.receive()[1] == b"here"
        peer.publish("quotes", b'{"id":1}')
        assert query(peer, "quotes").messages == [{"id": 1}]


def records(server: RunningServer, topic: str) -> list[int]:
    """The numbers of the records of a topic."""
    with server.log_on("reader") as peer:
        return sorted(record["n"] for record in query(peer, topic).messages)


def kill(server: RunningServer) -> None:
    """End a server without warning."""
    server.stop(signal.SIGKILL)


def test_the_journal_s_disk_is_full(tmp_path: Path) -> None:
    """Publishes are refused with the reason until there is space; all others are kept."""
    (tmp_path / "small").mkdir()
    elements = ELEMENTS.format(sow=".", journal="small")
    with small_disk(tmp_path / "small", 45) as disk:
        with running_server(tmp_path, elements=elements, prepare=disk) as server:
            with log_on(server) as peer:
                publisher = Publisher(peer, "events")
                publisher.publish()
                disk.fill()
                failure = publisher.until_refused()
                assert failure["reason"] == "not stored"
                assert "no space for another file" in failure["detail"]
                assert publisher.publish()["status"] == "failure"
                others_work(server)
                disk.make_space()
                for _ in range(3):
                    assert publisher.publish()["status"] == "success"
            assert replay(server, "events") == publisher.safe
            kill(server)
        with running_server(tmp_path, elements=elements, prepare=disk) as server:
            assert replay(server, "events") == publisher.safe


@pytest.mark.parametrize("topic", ["orders", "aside"])
def test_the_records_disk_is_full(tmp_path: Path, topic: str) -> None:
    """What cannot become a record is refused and not recorded; the log and the records agree."""
    (tmp_path / "small").mkdir()
    elements = ELEMENTS.format(sow="small", journal="journal")
    with small_disk(tmp_path / "small", 15) as disk:
        with running_server(tmp_path, elements=elements, prepare=disk) as server:
            with log_on(server) as peer:
                publisher = Publisher(peer, topic)
                publisher.publish()
                disk.fill()
                failure = publisher.until_refused()
                assert failure["reason"] == "not stored"
                assert "cannot grow" in failure["detail"]
                others_work(server)
                events = Publisher(peer, "events", publisher.sequence)
                assert events.publish()["status"] == "success"
                publisher.sequence = events.sequence
                disk.make_space()
                assert publisher.publish()["status"] == "success"
                peer.send({"c": "sow_delete", "t": topic, "sow_keys": "none", "cid": "d"})
            assert records(server, topic) == publisher.safe
            kill(server)
        with running_server(tmp_path, elements=elements, prepare=disk) as server:
            assert records(server, topic) == publisher.safe
            if topic == "orders":
                assert replay(server, topic) == publisher.safe


@pytest.mark.parametrize("topic", ["orders", "aside"])
def test_a_full_disk_is_relieved_by_deleting_records(tmp_path: Path, topic: str) -> None:
    """Deletions have room where nothing else has; what they leave is used again."""
    (tmp_path / "small").mkdir()
    elements = ELEMENTS.format(sow="small", journal="journal")
    with small_disk(tmp_path / "small", 15) as disk:
        with running_server(tmp_path, elements=elements, prepare=disk) as server:
            with log_on(server) as peer:
                publisher = Publisher(peer, topic)
                for _ in range(25):  # some slabs
                    assert publisher.publish()["status"] == "success"
                disk.fill()
                assert "cannot grow" in publisher.until_refused()["detail"]
                filled = len(publisher.safe)
                for _ in range(3):  # again and again
                    delete = {"c": "sow_delete", "t": topic, "cid": "d", "a": "stats,persisted"}
                    peer.send(delete | {"f": f"/n >= {publisher.safe[2]}"})
                    answers = {
                        ack["a"]: ack for ack in (peer.receive_header(), peer.receive_header())
                    }
                    assert {ack["status"] for ack in answers.values()} == {"success"}, answers
                    assert answers["stats"]["records_deleted"] == len(publisher.safe) - 2
                    del publisher.safe[2:]
                    while len(publisher.safe) < filled // 2:
                        until_published(publisher)
            assert records(server, topic) == publisher.safe
            kill(server)
        with running_server(tmp_path, elements=elements, prepare=disk) as server:
            assert records(server, topic) == publisher.safe
            with log_on(server, "another") as peer:
                header = {"c": "sow_delete", "t": topic, "cid": "d", "a": "processed"}
                assert peer.ask(header | {"f": "1=1"})["status"] == "success"
            assert records(server, topic) == []


@pytest.mark.parametrize("slabs", [2, 3, 5])
def test_updates_go_on_in_a_file_of_few_slabs(tmp_path: Path, slabs: int) -> None:
    """Superseded records are most of the file: their space is used again soon, without deletions.

    Two slabs are the least: one for the records, and one to move them to.
    """
    keys, updates = 5, 120
    elements = ELEMENTS.format(sow=".", journal="journal")
    with running_server(tmp_path, elements=elements) as server:
        pid = server.process.pid
        _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, ((slabs << 20) + (1 << 16), hard))
        with log_on(server) as peer:
            publisher = Publisher(peer, "aside")
            for update in range(updates):
                wait_until(
                    lambda: publisher.publish(update % keys)["status"] == "success",  # noqa: B023 - at once
                    "there is no room",
                )
            assert len(publisher.safe) == updates
            refused = publisher.sequence - 1 - updates
        assert refused < updates // 3
        assert records(server, "aside") == publisher.safe[-keys:]
        kill(server)
    with running_server(tmp_path, elements=elements) as server:
        assert records(server, "aside") == publisher.safe[-keys:]


def until_published(publisher: Publisher) -> None:
    """Publish until there is room, which is when slabs have been freed."""
    wait_until(lambda: publisher.publish()["status"] != "failure", "there is no room")


def test_the_journal_cannot_be_written(tmp_path: Path) -> None:
    """Writing fails within a file: what was accepted is kept and becomes safe when it can."""
    with running_server(tmp_path, elements=ELEMENTS.format(sow=".", journal="journal")) as server:
        with log_on(server) as peer:
            publisher = Publisher(peer, "events")
            publisher.publish()
            pid = server.process.pid
            _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (1, hard))
            body = json.dumps({"id": 2, "n": 2}).encode()
            peer.publish("events", body, s=2, a="persisted")
            peer.publish("plain", b"here")
            assert peer.hears_nothing(), "persisted without being on the disk"
            peer.publish("events", b"{}", s=3, a="processed")
            refused = peer.receive_header()
            assert (refused["s"], refused["reason"]) == (3, "not stored")
            assert "the transaction log cannot be written: " in refused["detail"]
            publisher.sequence = 3
            assert publisher.publish()["reason"] == "not stored", "refusals do not wait for others"
            others_work(server)
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))
            assert (ack := peer.receive_header())["s"] == 2, ack
            assert ack["status"] == "success"
            publisher.sequence = 4
            assert publisher.publish()["status"] == "success"
        assert replay(server, "events") == [1, 2, 4]
        kill(server)
    with running_server(tmp_path, elements=ELEMENTS.format(sow=".", journal="journal")) as server:
        assert replay(server, "events") == [1, 2, 4]


def test_a_file_of_chained_ids_cannot_grow(tmp_path: Path) -> None:
    """The publish is refused, and leaves nothing in the file that a start would stumble over."""
    chain = tmp_path / "ids.chain"
    last = {"id": 3, "previous": 2}
    with running_server(tmp_path, elements=CHAINED) as server:
        with log_on(server) as peer:

            def publish(sequence: int, **body: int) -> dict[str, Any]:
                header = {"c": "publish", "t": "chained", "s": sequence, "a": "persisted"}
                return peer.ask(header, json.dumps(body).encode())

            assert publish(1, id=1)["status"] == "success"
            whole = chain.read_bytes()
            pid = server.process.pid
            _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (len(whole) + 20, hard))
            refused = publish(2, **last)  # the first of its ids would fit
            assert (refused["status"], refused["reason"]) == ("failure", "not stored")
            assert "ids.chain cannot grow: " in refused["detail"]
            assert chain.read_bytes() == whole
            delete = {"c": "sow_delete", "t": "chained", "cid": "d", "a": "processed"}
            assert peer.ask(delete, json.dumps(last).encode())["reason"] == "not stored"
            assert publish(3, id=1)["status"] == "success", "it needs no room there"
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))
            assert publish(4, **last)["status"] == "success"
            assert publish(5, id=2)["status"] == "success"
        kill(server)
    with running_server(tmp_path, elements=CHAINED) as server, server.log_on("reader") as peer:
        assert query(peer, "chained").messages == [{"id": 1}, {"id": 2}]


def remove_all(journal: Path) -> None:
    """Also what the server is making there in advance, and renames at any moment."""
    while journal.parent.exists():
        shutil.rmtree(journal.parent, ignore_errors=True)


def rename(journal: Path) -> None:
    journal.rename(journal.with_suffix(".aside"))


def replace(journal: Path) -> None:
    rename(journal)
    journal.write_bytes(journal.with_suffix(".aside").read_bytes())


def empty(journal: Path) -> None:
    os.truncate(journal, 0)


@pytest.mark.parametrize(
    ("operation", "said"),
    [
        (remove_all, "the file has been removed or renamed while it was in use"),
        (rename, "the file has been removed or renamed while it was in use"),
        (replace, "another file has taken the place of the file while it was in use"),
        (empty, "the file has been cut while it was in use"),
    ],
)
def test_somebody_lays_hands_on_the_journal(
    tmp_path: Path, operation: Callable[[Path], None], said: str
) -> None:
    """What would be written where nobody finds it is not acknowledged."""
    with running_server(tmp_path, elements=ELEMENTS.format(sow=".", journal="journal")) as server:
        with log_on(server) as peer:
            publisher = Publisher(peer, "events")
            assert publisher.publish()["status"] == "success"
            operation(tmp_path / "journal" / "test-instance.0000000000.journal")
            peer.publish("events", b"{}", s=2, a="persisted")
            assert server.logs(said)
            peer.publish("events", b"{}", s=3, a="processed")
            refused = peer.receive_header()
            assert (refused["s"], refused["reason"]) == (3, "not stored")
            others_work(server)
        assert server.stop() == 0


def test_a_start_without_space_says_so(tmp_path: Path) -> None:
    """A journal needs its space at the start."""
    (tmp_path / "small").mkdir()
    with small_disk(tmp_path / "small", 5) as disk:
        said = why_no_start(tmp_path, ELEMENTS.format(sow=".", journal="small"), disk)
    assert "the transaction log cannot be used: " in said
    assert "No space left on device" in said


def test_a_directory_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    """Read-only file systems, and files in the way."""
    (tmp_path / "small").mkdir()
    (tmp_path / "file").touch()
    with small_disk(tmp_path / "small", 5, ",ro") as disk:
        place, why = ("small", "Read-only file system")
        if disk.holder is None:
            place, why = ("file/journal", "Not a directory")
        said = why_no_start(tmp_path, ELEMENTS.format(sow=".", journal=place), disk)
    assert why in said
    assert f"{place}/" in said or f"{place}:" in said


def test_a_damaged_table_of_publishers_is_made_again(tmp_path: Path) -> None:
    """`clients.ack` can be had from the journals."""
    elements = ELEMENTS.format(sow=".", journal="journal")
    with running_server(tmp_path, elements=elements) as server:
        with log_on(server) as peer:
            assert Publisher(peer, "events", 41).publish()["status"] == "success"
        assert server.stop() == 0
    (table,) = tmp_path.glob("journal/*.clients.ack")
    content = table.read_bytes()
    for spoiled in (content[:-9], b"", bytes(len(content)), content[:30] + b"?" + content[31:]):
        table.write_bytes(spoiled)
        with running_server(tmp_path, elements=elements) as server:
            assert server.logs(f"{table.name}: ")
            assert server.logs("it is rebuilt from the journals")
            with server.connect() as peer:
                assert peer.log_on("publisher")["s"] == 41
            kill(server)
