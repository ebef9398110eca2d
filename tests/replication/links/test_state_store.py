"""What an instance remembers of replication when it comes back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from server.replication.core import unpack
from server.storage.journal import JournalEntry
from tests.replication.links.members import Member, carry, connect, destination
from tests.replication.links.test_settlement import publish


def stored(member: Member) -> Path:
    """The file in which an instance remembers."""
    return member.directory / f"{member.name}.replication.ack"


def bookmarks(entries: list[JournalEntry]) -> list[str]:
    return [entry.bookmark for entry in entries]


def pair(tmp_path: Path) -> tuple[Member, Member]:
    """Two that replicate to each other what one was given to publish."""
    a, b = Member(tmp_path, "a", destination("b")), Member(tmp_path, "b", destination("a"))
    publisher = a.client()
    for number in (1, 2, 5):
        publish(publisher, s=number)
    carry(a, b)
    carry(b, a)
    assert len(b.entries()) == len(a.entries()) == 3
    return a, b


def started_again(tmp_path: Path) -> tuple[Member, Member]:
    """The same two, after both have been ended."""
    a, b = Member(tmp_path, "a", destination("b")), Member(tmp_path, "b", destination("a"))
    assert b.replication.dedup_window.gaps(b.entries()[0].client) == ((3, 4),)
    return a, b


def go_on(a: Member, b: Member) -> None:
    """One more message gets across, and nothing does twice."""
    publish(a.client(), s=6)
    carry(a, b)
    assert a.sender("b").sent_entries == 1
    assert bookmarks(b.entries()) == bookmarks(a.entries())
    a.close()
    b.close()


@pytest.mark.parametrize("end", [Member.close, Member.kill], ids=["close", "kill"])
def test_an_instance_that_comes_back_goes_on_where_it_was(
    tmp_path: Path, end: Callable[[Member], None]
) -> None:
    a, b = pair(tmp_path)
    log_id, sent = a.replication.log_id, a.sender("b").settled_txid
    for member in (a, b):
        member.store()
        end(member)
    a, b = started_again(tmp_path)
    assert a.replication.log_id == log_id
    assert a.sender("b").settled_txid == sent
    assert a.replication.settled_txid == sent
    assert a.replication.destination_lags() == []
    go_on(a, b)


def test_what_was_not_acknowledged_is_still_waited_for(tmp_path: Path) -> None:
    a = Member(tmp_path, "a", destination("b"))
    publish(a.client(), s=1)
    a.core.commit()
    a.close()
    a = Member(tmp_path, "a", destination("b"))
    again = a.client()
    publish(again, s=1)
    a.core.commit()
    assert a.told(again) == []
    a.replication.downgrade("b")
    assert a.told(again) == [("x", "failure")]
    a.close()
    a, b = Member(tmp_path, "a", destination("b")), Member(tmp_path, "b")
    publish(a.client(), s=1)
    a.core.commit()
    assert a.told(a.client()) == []  # a downgrade ends with the process
    assert [one.destination for one in a.replication.destination_lags()] == ["b"]
    carry(a, b)
    assert a.replication.destination_lags() == []
    a.close()
    b.close()


LOSSES: dict[str, Callable[[Path], object]] = {
    "the file": lambda path: path.unlink(),
    "its end": lambda path: path.write_bytes(path.read_bytes()[:-3]),
    "its checksum": lambda path: path.write_bytes(path.read_bytes()[:-1] + b"?"),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_without_what_was_stored_everything_is_found_out_again(tmp_path: Path, loss: str) -> None:
    a, b = pair(tmp_path)
    log_id = a.replication.log_id
    b.close()
    a.close()
    LOSSES[loss](stored(a))
    a, b = started_again(tmp_path)
    said = [fields["file"] for fields in a.said("21-0022")]
    assert said == [stored(a)] * (loss != "the file")
    assert a.replication.log_id != log_id
    assert a.replication.log_id.split("-")[0] == log_id.split("-")[0]
    go_on(a, b)


def test_a_log_that_is_begun_anew_has_another_name(tmp_path: Path) -> None:
    a, b = pair(tmp_path)
    log_id = a.replication.log_id
    a.close()
    for path in a.directory.iterdir():
        if path != stored(a):
            path.unlink()
    a = Member(tmp_path, "a", destination("b"))
    assert a.replication.log_id != log_id
    assert a.sender("b").settled_txid < a.core.transaction_log.journal.first_txid
    connect(b, a)
    carry(b, a)  # it gets back what it has lost
    assert bookmarks(a.entries()) == bookmarks(b.entries())
    a.close()
    b.close()


def test_what_is_replicated_elsewise_is_another_stream(tmp_path: Path) -> None:
    a, b = Member(tmp_path, "a", destination("b")), Member(tmp_path, "b")
    publisher = a.client()
    publish(publisher)
    publish(publisher, "others")
    carry(a, b)
    assert len(b.entries()) == 1
    a.close()
    a = Member(tmp_path, "a", destination("b", topic=".*"))
    carry(a, b)
    assert {entry.topic.name for entry in b.entries()} == {"orders", "others"}
    assert len(b.entries()) == 2
    a.close()
    b.close()


def test_what_is_stored_is_never_ahead_of_the_log(tmp_path: Path) -> None:
    a = Member(tmp_path, "a", destination("b"))
    publish(a.client(), s=3)
    last = a.core.transaction_log.last_txid
    a.core.clock.advance(1.5)
    assert unpack(stored(a).read_bytes()).txid < last
    a.core.commit()
    a.core.wait_for_helper()
    remembered = unpack(stored(a).read_bytes())
    assert remembered.txid == last
    assert [(one.highest, tuple(one.gaps)) for one in remembered.publisher_windows] == [
        (3, ((1, 2),))
    ]
    a.close()


def test_nothing_is_stored_as_long_as_nothing_changes(tmp_path: Path) -> None:
    a = Member(tmp_path, "a", destination("b"))
    stored(a).unlink()
    a.core.clock.advance(10)
    assert not stored(a).exists()
    a.close()
    assert stored(a).exists()


def test_many_publishers_are_remembered(tmp_path: Path) -> None:
    a, b = Member(tmp_path, "a", destination("b")), Member(tmp_path, "b")
    for number in range(1200):
        publish(a.client(f"publisher {number}"), s=2)
    a.core.commit()
    a.store()
    a.kill()
    assert len(unpack(stored(a).read_bytes()).publisher_windows) == 1200
    a = Member(tmp_path, "a", destination("b"))
    carry(a, b)
    assert all(a.replication.dedup_window.gaps(entry.client) for entry in a.entries())
    a.close()
    b.close()


def test_the_duplicate_of_a_settled_message_is_told_at_once(tmp_path: Path) -> None:
    a, b = pair(tmp_path)
    again = a.client()
    publish(again, s=5)
    assert a.told(again) == [("x", "failure")]
    a.close()
    b.close()


def test_an_instance_that_cannot_store_it_goes_on(tmp_path: Path) -> None:
    a, b = pair(tmp_path)
    in_the_way = stored(a).with_name(stored(a).name + ".tmp")
    in_the_way.mkdir()
    for number in (6, 7):
        publish(a.client(), s=number)
        carry(a, b)
        a.store()
    (said,) = a.said("21-0024")
    assert said["file"] == stored(a)
    assert "directory" in str(said["problem"])
    in_the_way.rmdir()
    a.store()
    assert unpack(stored(a).read_bytes()).txid == a.core.transaction_log.last_txid
    a.close()
    b.close()
