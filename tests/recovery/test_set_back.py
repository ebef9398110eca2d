"""SOW files that are ahead of the transaction log after a power failure."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.recovery.test_kills import ELEMENTS
from tests.support.moments import now
from tests.support.raw import QUICK_ACKS, RawPeer
from tests.support.server import RunningServer, running_server
from tests.support.sow import query

TOPICS = ("orders", "shared")


def publish(peer: RawPeer, topic: str, sequence: int, key: str, value: int) -> None:
    """Publish a record, and wait until it is safe."""
    body = json.dumps({"id": key, "value": value}).encode()
    peer.send({"c": "publish", "t": topic, "s": sequence, "a": "persisted"}, body)
    assert peer.receive_header()["s"] == sequence


def delete(peer: RawPeer, topic: str, sequence: int, chosen: str) -> None:
    """Delete the records that a filter chooses, and wait until that is safe."""
    peer.send({"c": "sow_delete", "t": topic, "s": sequence, "a": "persisted", "f": chosen})
    assert peer.receive_header()["s"] == sequence


def records_of(peer: RawPeer, topic: str, **more: str) -> dict[str, int]:
    """What is in a topic."""
    return {one["id"]: one["value"] for one in query(peer, topic, **more).messages}


def records(server: RunningServer) -> dict[str, dict[str, int]]:
    """What is in the topics."""
    with server.log_on("reader") as peer:
        return {topic: records_of(peer, topic) for topic in TOPICS}


def test_all_stores_are_set_back_to_the_log(tmp_path: Path) -> None:
    """What lost entries made, changed and deleted is undone in every topic, and stays so."""
    elements = ELEMENTS.format(flush="10us")
    (tmp_path / "shadows").mkdir()
    with (
        running_server(tmp_path, elements=elements) as server,
        server.log_on("p", o=QUICK_ACKS) as peer,
    ):
        sequence = 0
        for topic in TOPICS:
            for key in ("kept", "changed", "deleted"):
                sequence += 1
                publish(peer, topic, sequence, key, 1)
        before = records(server)
        (journal,) = (path for path in tmp_path.glob("journal/*0.journal"))
        safe = journal.read_bytes()
        for topic in TOPICS:
            publish(peer, topic, sequence + 1, "changed", 2)
            publish(peer, topic, sequence + 2, "made", 2)
            sequence += 3
            command = {"c": "sow_delete", "t": topic, "sow_keys": "", "a": "persisted"}
            peer.send(command | {"s": sequence, "f": "/id = 'deleted'"})
            assert peer.receive_header()["s"] == sequence
        assert records(server) != before
        server.stop(signal.SIGKILL)
    journal.write_bytes(safe)
    for starts in range(2):
        with running_server(tmp_path, elements=elements) as server:
            assert records(server) == before
            said = ["15-0014" in line for line in server.log().splitlines() if "(json) had" in line]
            assert said == [True] * (0 if starts else 2), "once for each topic"
            if not starts:
                assert server.logs("3 records were rolled back")
            server.stop(signal.SIGKILL)
    with running_server(tmp_path, elements=elements) as server:
        with server.connect() as peer:
            assert peer.log_on("p")["s"] == 6, "what is lost may be sent again"
            publish(peer, "orders", 7, "changed", 3)
        assert records(server)["orders"]["changed"] == 3


def test_a_log_that_lost_its_first_commit(tmp_path: Path) -> None:
    """Where the log began is not forgotten with it, so that the records are known to be ahead."""
    elements = ELEMENTS.format(flush="10us")
    with (
        running_server(tmp_path, elements=elements) as server,
        server.log_on("p", o=QUICK_ACKS) as peer,
    ):
        (journal,) = (path for path in tmp_path.glob("journal/*0.journal"))
        safe = journal.read_bytes()
        publish(peer, "orders", 1, "made", 1)
        server.stop(signal.SIGKILL)
    journal.write_bytes(safe)
    with running_server(tmp_path, elements=elements) as server:
        assert records(server) == {"orders": {}, "shared": {}}


WITH_HISTORY = """
<SOW>
  <Topic>
    <Name>h</Name><MessageType>json</MessageType><Key>/id</Key><FileName>h.sow</FileName>
    <History><Window>1d</Window><Granularity>{granularity}</Granularity></History>
  </Topic>
</SOW>
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <FlushInterval>10us</FlushInterval>
  <Topic><Name>h</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""


def states(server: RunningServer, bookmarks: list[str]) -> list[dict[str, int]]:
    """The records at some moments."""
    with server.log_on("historian") as peer:
        return [records_of(peer, "h", bm=bookmark) for bookmark in bookmarks]


@pytest.mark.parametrize("granularity", ["0s", "1h"])
def test_history_does_not_know_what_the_log_has_lost(tmp_path: Path, granularity: str) -> None:
    """Neither lost states, nor that others had ended with them; also not after another start."""
    elements = WITH_HISTORY.format(granularity=granularity)
    with (
        running_server(tmp_path, elements=elements) as server,
        server.log_on("p", o=QUICK_ACKS) as peer,
    ):
        for sequence, key in enumerate(("kept", "changed", "deleted", "twice"), 1):
            publish(peer, "h", sequence, key, 1)
        publish(peer, "h", 5, "twice", 2)
        moments = [now()]
        (journal,) = (path for path in tmp_path.glob("journal/*0.journal"))
        safe = journal.read_bytes()
        for sequence, key in ((6, "changed"), (7, "changed"), (8, "made"), (9, "twice")):
            publish(peer, "h", sequence, key, 90 + sequence)
        delete(peer, "h", 10, "/id IN ('deleted', 'made')")
        publish(peer, "h", 11, "made", 91)
        moments.append(now())
        server.stop(signal.SIGKILL)
    journal.write_bytes(safe)
    before = {"kept": 1, "changed": 1, "deleted": 1, "twice": 2}
    expected = [before, before]
    for again in range(3):
        with running_server(tmp_path, elements=elements) as server:
            assert states(server, moments) == expected
            with server.log_on("reader") as peer:
                assert [records_of(peer, "h")] == expected[-1:]
            with server.connect() as peer:
                assert peer.log_on("p")["s"] == 5 + 2 * again
                publish(peer, "h", 6 + 2 * again, "other", again)
                publish(peer, "h", 7 + 2 * again, "changed", 2 + again)
            moments.append(now())
            expected.append(expected[-1] | {"other": again, "changed": 2 + again})
            if granularity != "0s":  # the first state stands for those within an hour
                expected[2:-1] = [expected[1] | {"other": 0}] * (len(expected) - 3)
            assert states(server, moments) == expected
            server.stop(signal.SIGKILL)


def remove_first_journal(directory: Path) -> None:
    """Remove what an action would have removed for its age."""
    (first,) = directory.glob("journal/*.0000000000.journal")
    for path in directory.glob(f"journal/{first.name}*"):
        path.unlink()


@pytest.mark.parametrize("churn", [0, 3000], ids=["in the file", "cleaned away"])
def test_what_records_were_where_the_log_has_lost_its_beginning(tmp_path: Path, churn: int) -> None:
    """It is in their file, until that is cleaned; then they stay as they are, which is said."""
    elements = ELEMENTS.format(flush="10us")
    (tmp_path / "shadows").mkdir()
    with (
        running_server(tmp_path, elements=elements) as server,
        server.log_on("p", o=QUICK_ACKS) as peer,
    ):
        for sequence, key in enumerate(("kept", "changed", "deleted"), 1):
            publish(peer, "orders", sequence, key, 1)
        before = records(server)["orders"]
        for number in range(12):  # until the journal goes on in another file
            peer.publish("events/large", b"x" * 1_000_000, s=4 + number)
        publish(peer, "shared", 20, "last", 1)
        (journal,) = tmp_path.glob("journal/*.0000000001.journal")
        safe = journal.read_bytes()
        publish(peer, "orders", 21, "changed", 2)
        publish(peer, "orders", 22, "made", 2)
        command = {"c": "sow_delete", "t": "orders", "sow_keys": "", "a": "persisted"}
        peer.send(command | {"s": 23, "f": "/id = 'deleted'"})
        assert peer.receive_header()["s"] == 23
        pad = "x" * 1000
        for _ in range(churn):
            peer.publish("orders", json.dumps({"id": "busy", "value": 2, "pad": pad}).encode())
        publish(peer, "orders", 24, "busy", 2)
        server.stop(signal.SIGKILL)
    journal.write_bytes(safe)
    remove_first_journal(tmp_path)
    unknown = {"kept": 1, "changed": 2, "made": 2, "busy": 2}
    for starts in range(2):
        with running_server(tmp_path, elements=elements) as server:
            assert records(server)["orders"] == (unknown if churn else before)
            assert ("3 records keep changes" in server.log()) == (bool(churn) and not starts)
            assert ("15-0014" in server.log()) == (not starts)
            server.stop(signal.SIGKILL)


LOG_ALONE = """
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <FlushInterval>10us</FlushInterval>
  <Topic><Name>n</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""
WITH_POINT = (
    """
<SOW>
  <Topic>
    <Name>n</Name><MessageType>json</MessageType><Key>/id</Key><FileName>n.sow</FileName>
    <RecoveryPoint>{point}</RecoveryPoint>
  </Topic>
</SOW>
"""
    + LOG_ALONE
)


@pytest.mark.parametrize("point", ["now", "a time"])
def test_nothing_comes_back_from_before_the_recovery_point(tmp_path: Path, point: str) -> None:
    """The topic has never had it."""
    with (
        running_server(tmp_path, elements=LOG_ALONE) as server,
        server.log_on("p", o=QUICK_ACKS) as peer,
    ):
        publish(peer, "n", 1, "before", 1)
        publish(peer, "n", 2, "changed", 1)
    elements = WITH_POINT.format(point=now() if point == "a time" else point)
    with (
        running_server(tmp_path, elements=elements) as server,
        server.log_on("p", o=QUICK_ACKS) as peer,
    ):
        publish(peer, "n", 3, "kept", 1)
        publish(peer, "n", 4, "deleted", 1)
        (journal,) = tmp_path.glob("journal/*0.journal")
        safe = journal.read_bytes()
        publish(peer, "n", 5, "changed", 2)
        delete(peer, "n", 6, "/id = 'deleted'")
        server.stop(signal.SIGKILL)
    journal.write_bytes(safe)
    with running_server(tmp_path, elements=elements) as server, server.log_on("reader") as peer:
        assert records_of(peer, "n") == {"kept": 1, "deleted": 1}
        assert server.logs("2 records were rolled back")


def test_nothing_is_undone_of_what_came_while_a_topic_was_not_in_the_log(tmp_path: Path) -> None:
    """Neither a deletion nor a change; and once it is in the log again, that is asked as ever."""
    elements = WITH_POINT.format(point="epoch")
    outside = elements.replace("<Topic><Name>n<", "<Topic><Name>other<")
    with running_server(tmp_path, elements=elements) as server:
        with server.log_on("p", o=QUICK_ACKS) as peer:
            for sequence, key in enumerate(("kept", "changed", "deleted", "lost"), 1):
                publish(peer, "n", sequence, key, 1)
        server.stop(signal.SIGKILL)
    with running_server(tmp_path, elements=outside) as server:
        with server.log_on("p", o=QUICK_ACKS) as peer:
            publish(peer, "n", 5, "changed", 2)
            peer.send({"c": "sow_delete", "t": "n", "a": "completed", "f": "/id = 'deleted'"})
            assert peer.receive_header()["status"] == "success"
        server.stop(signal.SIGKILL)
    expected = {"kept": 1, "changed": 2, "lost": 1}
    with running_server(tmp_path, elements=elements) as server:
        with server.log_on("p", o=QUICK_ACKS) as peer:
            assert records_of(peer, "n") == expected
            assert "were rolled back" not in server.log()
            (journal,) = tmp_path.glob("journal/*0.journal")
            publish(peer, "n", 6, "made", 1)
            safe = journal.read_bytes()
            delete(peer, "n", 7, "/id = 'lost'")
        server.stop(signal.SIGKILL)
    journal.write_bytes(safe)
    with running_server(tmp_path, elements=elements) as server, server.log_on("reader") as peer:
        assert records_of(peer, "n") == expected | {"made": 1}
        assert server.logs("1 records were rolled back")
