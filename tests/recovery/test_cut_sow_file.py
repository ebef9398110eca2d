"""A SOW file is truncated or overwritten while it is in use: its topic fails, and nothing else."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.support.raw import QUICK_ACKS, RawPeer
from tests.support.server import RunningServer, running_server
from tests.support.sow import query

RECORDS: Final = 40
PAD: Final = "x" * 3000

Deed = Callable[[Path], None]


def cut_to(size: int) -> Deed:
    """Truncates a file."""
    return lambda path: os.truncate(path, size)


def overwrite(path: Path) -> None:
    """Copies the file of another topic over this one."""
    shutil.copyfile(path.with_name("other.sow"), path)


OPERATIONS: Final[dict[str, Deed]] = {
    "to_nothing": cut_to(0),
    "within_the_first_page": cut_to(100),
    "to_the_first_page": cut_to(4096),
    "within_a_page": cut_to(4096 + 30_000),
    "between_pages": cut_to(4096 + 65_536),
    "overwritten": overwrite,
}

TOPIC: Final = """
  <Topic>
    <Name>{name}</Name><MessageType>json</MessageType><Key>/id</Key>
    <FileName>{name}.sow</FileName><SlabSize>256KB</SlabSize>
  </Topic>
"""


def elements(names: list[str]) -> str:
    """Topics with records; those whose names begin with `logged` are in the transaction log."""
    topics = "".join(TOPIC.format(name=name) for name in [*names, "other"])
    return f"""
<SOW>{topics}</SOW>
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>^(logged.*|events)$</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""


def body(number: int) -> bytes:
    """A message that takes the better part of a page."""
    return json.dumps({"id": number, "pad": PAD}).encode()


def publish(peer: RawPeer, topic: str, sequence: int, number: int) -> dict[str, str]:
    """Publish a message; gives the last word on it."""
    return peer.ask({"c": "publish", "t": topic, "s": sequence, "a": "persisted"}, body(number))


def fill(peer: RawPeer, topic: str, sequence: int) -> int:
    """Publish records and wait until they are safe; gives the last sequence number."""
    for number in range(RECORDS - 1):
        peer.publish(topic, body(number), s=sequence + number)
    last = sequence + RECORDS - 1
    peer.send({"c": "publish", "t": topic, "s": last, "a": "persisted"}, body(RECORDS - 1))
    while (ack := peer.receive_header())["s"] < last:
        assert ack["status"] == "success"
    assert ack["status"] == "success"
    return last


def ids(server: RunningServer, topic: str) -> list[int]:
    """The records of a topic."""
    with server.log_on("reader") as peer:
        return sorted(one["id"] for one in query(peer, topic).messages)


def asks_in_vain(peer: RawPeer, header: dict[str, str]) -> None:
    """A query that needs what is lost ends with a failure."""
    peer.send(header | {"a": "completed"})
    while (answer := peer.receive())[0]["c"] != "ack":
        pass
    ack = answer[0]
    assert (ack["a"], ack["status"]) == ("completed", "failure"), ack
    assert ack["reason"] == "not readable"
    assert "has been truncated or overwritten while it was in use" in ack["detail"]


@pytest.mark.parametrize("way", ["logged", "plain"])
def test_a_file_is_cut_while_it_is_in_use(tmp_path: Path, way: str) -> None:
    """Publishers and readers of its topic are told why; all others go on, also afterwards."""
    names = [f"{way}_{name}" for name in OPERATIONS]
    configuration = elements(names)
    with running_server(tmp_path, elements=configuration) as server:
        with server.log_on("publisher", o=QUICK_ACKS) as peer, server.log_on("reader") as reader:
            last = 0
            for name in (*names, "other"):
                last = fill(peer, name, last + 1)
            for name, operation in zip(names, OPERATIONS.values(), strict=True):
                operation(tmp_path / f"{name}.sow")
                if operation is not overwrite:
                    asks_in_vain(reader, {"c": "sow", "t": name, "cid": "q", "f": "/pad LIKE 'x'"})
                    follow = {"c": "sow_and_subscribe", "t": name, "cid": "s"}
                    asks_in_vain(reader, follow | {"top_n": "100000", "orderby": "/pad"})
                outcomes = [publish(peer, name, last + number, 0) for number in (1, 2, 3)]
                last += 3
                assert outcomes[-1]["status"] == "failure" or way == "logged", outcomes
                assert server.logs(f"SOW topic '{name}' cannot be flushed to stable storage: ")
                refused = publish(peer, name, last + 1, 0)
                assert (refused["status"], refused["reason"]) == ("failure", "not stored")
                assert "truncated or overwritten while it was in use" in refused["detail"]
                delete = {"c": "sow_delete", "t": name, "cid": "d", "a": "processed", "f": "1=1"}
                assert reader.ask(delete)["status"] == "failure"
                last += 1
                assert publish(peer, "other", last + 1, 0)["status"] == "success"
                assert publish(peer, "events", last + 2, 0)["status"] == "success"
                last += 2
        assert ids(server, "other") == list(range(RECORDS))
        assert server.stop() == 0
        assert "Traceback" not in server.log()
    with running_server(tmp_path, elements=configuration) as server:
        assert ids(server, "other") == list(range(RECORDS))
        for name, operation in zip(names, OPERATIONS.values(), strict=True):
            if operation is overwrite:
                continue
            assert ids(server, name) == (list(range(RECORDS)) if way == "logged" else [])
            said = [line for line in server.log().splitlines() if f"SOW topic '{name}'" in line]
            assert any("15-0009" in line or "15-0015" in line for line in said), said


def test_a_file_is_cut_at_any_moment(tmp_path: Path) -> None:
    """Under publishes that nobody waits for, with commits under way, and before the end."""
    configuration = elements(["logged", "plain"])
    for how in (signal.SIGTERM, signal.SIGKILL):
        with running_server(tmp_path, elements=configuration) as server:
            with server.log_on("publisher", o=QUICK_ACKS) as peer:
                for number in range(400):
                    for topic in ("logged", "plain"):
                        peer.publish(topic, body(number))
                    if number == 150:
                        assert peer.ask({"c": "flush", "cid": "f", "a": "persisted"})
                    if number == 200:
                        for topic in ("logged", "plain"):
                            os.truncate(tmp_path / f"{topic}.sow", 150_000)
                assert peer.ask({"c": "flush", "cid": "f", "a": "processed"})
                assert publish(peer, "other", 1, 0)["status"] == "success"
            assert server.stop(how) == (0 if how is signal.SIGTERM else -how)
            assert "Traceback" not in server.log()
    with running_server(tmp_path, elements=configuration) as server:
        assert set(ids(server, "logged")) >= set(range(150))
        with server.log_on("publisher", o=QUICK_ACKS) as peer:
            assert publish(peer, "plain", 2, 0)["status"] == "success"


@dataclass(frozen=True)
class CutWhenReserved:
    """Prepares a process: a file in which space has been reserved is cut before that is used.

    Attributes:
        sign: the file that has to be there for it.
    """

    sign: Path

    def __call__(self) -> None:
        """Watch the calls of this process from now on."""
        reserve = os.posix_fallocate

        def reserve_and_cut(descriptor: int, offset: int, length: int) -> None:
            reserve(descriptor, offset, length)
            if self.sign.exists():
                os.truncate(f"/proc/self/fd/{descriptor}", offset)

        os.posix_fallocate = reserve_and_cut


def test_a_file_is_cut_while_it_grows(tmp_path: Path) -> None:
    """Its publisher is told; the connection goes on."""
    sign = tmp_path / "sign"
    prepare = CutWhenReserved(sign)
    with running_server(tmp_path, elements=elements(["plain"]), prepare=prepare) as server:
        with server.log_on("publisher", o=QUICK_ACKS) as peer:
            sequence = fill(peer, "plain", 1)
            sign.touch()
            outcomes = [publish(peer, "plain", sequence + step, step) for step in range(1, 400)]
            assert outcomes[-1]["reason"] == "not stored"
            assert "truncated or overwritten while it was in use" in outcomes[-1]["detail"]
            assert publish(peer, "other", sequence + 400, 0)["status"] == "success"
        assert server.stop() == 0
        assert "01-0004" not in server.log()


def test_a_file_is_removed_while_it_is_in_use(tmp_path: Path) -> None:
    """What nobody would find again is not acknowledged; when it is back, it is."""
    with running_server(tmp_path, elements=elements(["plain"])) as server:
        with server.log_on("publisher", o=QUICK_ACKS) as peer:
            file, aside = tmp_path / "plain.sow", tmp_path / "aside"
            assert publish(peer, "plain", 1, 1)["status"] == "success"
            file.rename(aside)
            refused = publish(peer, "plain", 2, 2)
            assert (refused["status"], refused["reason"]) == ("failure", "not stored")
            assert "has been removed, renamed or replaced" in refused["detail"]
            aside.rename(file)
            assert server.logs("15-0013")
            assert publish(peer, "plain", 3, 3)["status"] == "success"
        assert ids(server, "plain") == [1, 2, 3]


def test_records_that_cannot_be_removed_are_said_once(tmp_path: Path) -> None:
    """However often it is tried again; the records of another topic tell that it has been."""
    topics = "".join(
        f"<Topic><Name>{name}</Name><MessageType>json</MessageType><Key>/id</Key>"
        f"<FileName>{name}.sow</FileName><Expiration>{seconds}s</Expiration></Topic>"
        for name, seconds in (("cut", 1), ("kept", 4))
    )
    with running_server(tmp_path, elements=f"<SOW>{topics}</SOW>") as server:
        with server.log_on() as peer:
            for name in ("cut", "kept"):
                peer.publish(name, b'{"id":1}')
            assert peer.ask({"c": "flush", "cid": "f", "a": "processed"})
            peer.subscribe("kept", "1", o="oof")
            os.truncate(tmp_path / "cut.sow", 4096)
            while peer.receive()[0]["c"] != "oof":
                pass
        server.stop()
    assert server.log().count("15-0011") == 1
