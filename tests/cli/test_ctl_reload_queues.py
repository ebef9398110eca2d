"""`amps-ctl reload`: queues are removed, and added again, while clients are connected."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.admin.support import Admin, running_admin
from tests.cli.reload_support import configuration, edit, refused, reloaded
from tests.cli.topic_elements import queue, topic
from tests.support.queues import bookmarks, consume, done, make_safe, numbers, put, take
from tests.support.raw import RawPeer
from tests.support.server import running_configuration
from tests.support.waiting import wait_until

LOG: Final = """
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>in-.*</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""
ACTION: Final = """
<Actions><Action>
  <On>
    <Module>amps-action-on-sow-expire-message</Module>
    <Options><Topic>more</Topic><MessageType>json</MessageType></Options>
  </On>
  <Do>
    <Module>amps-action-do-echo-message</Module>
    <Options><Message>it has left</Message></Options>
  </Do>
</Action></Actions>
"""
WORK: Final = queue("work", "in-work")


def with_queues(*elements: str) -> str:
    """The elements of a configuration with these queues."""
    return f"{LOG}<SOW>{topic('plain')}{''.join(elements)}</SOW>"


@pytest.fixture
def admin(tmp_path: Path) -> Iterator[Admin]:
    with running_admin(tmp_path, elements=with_queues(WORK, queue("other", "in-work"))) as running:
        yield running


def is_listed(admin: Admin, name: str) -> bool:
    """Whether the statistics have a queue."""
    return admin.ask(f"/amps/instance/queues/{name}!json").status == 200


def refusal_of_ack(peer: RawPeer, name: str, bookmark: str) -> str:
    """The reason why messages cannot be acknowledged."""
    ack = peer.ask({"c": "ack", "cid": "d", "t": name, "bm": bookmark, "a": "processed"})
    assert ack["status"] == "failure"
    return str(ack["detail"])


def test_a_removed_queue_ends_its_consumers(admin: Admin, tmp_path: Path) -> None:
    """By name they get the reason; by an expression they get what is published to the name."""
    put(admin.server, "in-work", range(6))
    with (
        admin.server.log_on("named") as named,
        admin.server.log_on("any") as other,
        admin.server.log_on("publisher") as publisher,
    ):
        consume(named, "work", 3)
        held = take(named, 3)
        assert done(named, "work", bm=bookmarks(held[:1])) == 1
        take(named, 1)
        other.subscribe("^wor.$", "any", o="max_backlog=1", a="processed")
        other.receive()
        edit(admin, WORK, "")
        lines = reloaded(admin)
        assert "queue work is removed, with 5 messages, 4 of them leased, and 2 consumers" in lines
        ended = named.receive_header()
        assert (ended["status"], ended["sub_id"], ended["reason"]) == (
            "failure",
            "s",
            "subscription ended",
        )
        assert "queue work has been removed" in ended["detail"]
        assert "is no queue" in refusal_of_ack(named, "work", bookmarks(held[1:]))
        publisher.publish("work", b'{"n":7}')
        publisher.publish("in-work", b'{"n":8}')
        publisher.flush()
        assert other.receive()[1] == b'{"n":7}'
        assert other.hears_nothing()
        assert named.hears_nothing()
        wait_until(lambda: not is_listed(admin, "work"), lambda: "it is still listed")
        consume(named, "other", 100, sub_id="t")  # it has all messages, as before
        assert numbers(take(named, 7)) == [0, 1, 2, 3, 4, 5, 8]
    assert "01-0004" not in admin.server.log()
    admin.server.stop(signal.SIGKILL)
    text = configuration(admin.server).read_text()
    with (
        running_configuration(tmp_path, text, admin.server.port) as again,
        again.log_on("afterwards") as peer,
    ):
        assert peer.ask({"c": "sow", "cid": "q", "t": "work", "a": "processed"})["status"] != (
            "success"
        )


@pytest.mark.parametrize("point", ["epoch", "now"])
@pytest.mark.parametrize("others", ["", queue("other", "in-work")])
def test_a_queue_is_added_again(tmp_path: Path, point: str, others: str) -> None:
    """With what the log has and has not been acknowledged, or empty."""
    work = queue("work", "in-work", f"<RecoveryPoint>{point}</RecoveryPoint>")
    with running_admin(tmp_path, elements=with_queues(work, others)) as admin:
        put(admin.server, "in-work", range(5))
        with admin.server.log_on("named") as named:
            consume(named, "work", 3)
            held = take(named, 3)
            assert done(named, "work", bm=bookmarks(held[:2])) == 2
            edit(admin, work, "")
            reloaded(admin)
            put(admin.server, "in-work", [5])
            edit(admin, "</SOW>", f"{work}</SOW>")
            reloaded(admin)
        expected = [6, 7] if point == "now" else [2, 3, 4, 5, 6, 7]
        with admin.server.log_on("next") as peer:
            consume(peer, "work", 100)
            put(admin.server, "in-work", [6, 7])
            given = take(peer, len(expected))
            assert numbers(given) == expected
            assert peer.hears_nothing()
            assert done(peer, "work", bm=bookmarks(given[:1])) == 1
        make_safe(admin.server)
        admin.server.stop(signal.SIGKILL)
        text = configuration(admin.server).read_text()
        with (
            running_configuration(tmp_path, text, admin.server.port) as again,
            again.log_on("afterwards") as peer,
        ):
            consume(peer, "work", 100)
            assert numbers(take(peer, len(expected) - 1)) == expected[1:]
            assert peer.hears_nothing()


def test_letters_are_redriven_into_a_queue_that_was_added_again(tmp_path: Path) -> None:
    """Also after a reload that was refused when the queue had been made."""
    work = queue(
        "work",
        "in-work",
        "<MaxDeliveries>1</MaxDeliveries><DeadLetterTopic>in-dead</DeadLetterTopic>",
    )
    dead = queue("dead", "in-dead")
    with (
        running_admin(tmp_path, elements=with_queues(work, dead)) as admin,
        admin.server.log_on("peer") as peer,
        admin.server.log_on("operator") as operator,  # peer gets it before or after the ack
    ):
        edit(admin, work, "")
        reloaded(admin)
        edit(admin, "</SOW>", f"{work}</SOW>")
        reloaded(admin)
        put(admin.server, "in-work", [1])
        consume(peer, "work", 1)
        (held,) = take(peer, 1)
        assert done(peer, "work", bm=held[0]["bm"], opts="cancel") == 1
        admin.comes("/amps/instance/queues/dead!json/queue_depth", "1")
        assert done(operator, "dead", filter="1=1", opts="redrive") == 1
        assert numbers(take(peer, 1)) == [1]


def test_a_queue_that_is_needed_stays(admin: Admin) -> None:
    with admin.server.log_on("peer") as peer:
        terms = {"o": "top_n=1,skip_n=0", "orderby": "/n", "a": "processed"}
        peer.send({"c": "sow_and_subscribe", "cid": "1", "t": "work", **terms})
        peer.receive()
        edit(admin, WORK, "")
        assert "subscriptions to pages or groups" in refused(admin)


def test_an_action_comes_after_its_queue(admin: Admin) -> None:
    more = queue("more", "in-work")
    edit(admin, "</SOW>", f"{more}</SOW>{ACTION}")
    assert "amps-action-on-sow-expire-message needs it before" in refused(admin)
    edit(admin, ACTION, "")
    reloaded(admin)
    edit(admin, "</SOW>", f"</SOW>{ACTION}")
    reloaded(admin)
    put(admin.server, "in-work", [1])
    with admin.server.log_on("peer") as peer:
        consume(peer, "more", 1)
        (held,) = take(peer, 1)
        assert done(peer, "more", bm=held[0]["bm"], opts="expire") == 1
    assert admin.server.logs("it has left")
