"""Commands that take long are done in steps, and what their client sends after them waits."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import pytest

from server.security.deferred import AnswerFuture
from server.security.permissions import Permission, Permissions, Permit
from server.util import limits
from tests.engine.busy import BUSY, busy_core, heartbeats, log_on, numbers, subscriptions
from tests.engine.support import Core, CorePeer
from tests.storage.sow.support import topic_spec
from tests.support.raw import frame


@pytest.fixture
def core() -> Core:
    """An engine whose work takes time."""
    return busy_core()


def test_a_logon_waits_for_what_its_name_has_sent(core: Core, tmp_path: Path) -> None:
    """All of that is obeyed, then the first connection ends, then the second is logged on."""
    core.record(tmp_path, "^orders$")
    first = log_on(core, "twice")
    publishes = [frame({"c": "publish", "t": "orders", "cid": "1", "s": n + 1}) for n in range(100)]
    first.send_bytes(b"".join(publishes))
    assert first.is_paused
    second = core.connect()
    second.send({"c": "logon", "client_name": "twice", "mt": "json", "a": "processed"})
    second.send({"c": "publish", "t": "orders", "cid": "1", "s": 101, "a": "processed"})
    assert second.take_frames() == []
    core.clock.advance(0.5)
    assert first.hung_up
    logon, publish = (header for header, _ in second.take_frames())
    assert (logon["status"], logon["s"]) == ("success", 100)
    assert publish["status"] == "success"
    core.transaction_log.close()


def test_a_logon_does_not_wait_for_long(core: Core, tmp_path: Path) -> None:
    """However much the first connection has sent, and however long that takes."""
    core.record(tmp_path, "^orders$")
    first = log_on(core, "twice")
    first.send_bytes(heartbeats(100))
    second = core.connect()
    second.send({"c": "logon", "client_name": "twice", "mt": "json", "a": "processed"})
    assert second.take_frames() == []
    core.clock.time += 2.0
    for _ in range(3):  # each of the two connections uses up rounds
        core.clock.turn()
    assert first.hung_up
    assert len(numbers(first)) < 100
    assert [header["status"] for header, _ in second.take_frames()] == ["success"]
    core.transaction_log.close()


@dataclass
class LatePermissions:
    """An entitlement module that answers when the test says, and permissions that can be told off.

    Attributes:
        decision: whether its users may log on.
    """

    decision: Permit
    answer: AnswerFuture[Permissions] = field(default_factory=AnswerFuture)
    users: list[str] = field(default_factory=list)

    def acquire_permissions(self, user: str) -> AnswerFuture[Permissions]:
        self.users.append(user)
        return self.answer

    def forget(self, user: str | None = None) -> None:
        """Nothing is kept."""

    def get_permit(self, permission: Permission, resource: str) -> Permit:
        return self.decision

    def allows_instance(self, name: str) -> bool | None:
        return None

    def release(self) -> None:
        self.users.pop()


@pytest.mark.parametrize("is_permitted", [True, False])
@pytest.mark.parametrize("leaves", [True, False])
def test_permissions_that_come_late_are_held_by_those_who_are_logged_on(
    leaves: bool, is_permitted: bool
) -> None:
    """Who waits for them is not turned away meanwhile."""
    core, module = Core(), LatePermissions(Permit(is_permitted))
    core.entrance = replace(core.entrance, entitlement=module)
    peer = core.connect()
    peer.send({"c": "logon", "mt": "json", "user_id": "u", "a": "processed"})
    core.clock.advance(2 * limits.LOGON_TIMEOUT_S)
    assert not peer.hung_up
    if leaves:
        peer.leave()
    module.answer.set_result(module)
    core.clock.advance(0)
    assert module.users == (["u"] if is_permitted and not leaves else [])


def test_ending_all_subscriptions_takes_turns(core: Core) -> None:
    """Meanwhile others are served; what the client asks for after it comes after it."""
    core.clock.work_per_look = 0.0
    holder, publisher = log_on(core, "holder"), log_on(core, "publisher")
    holder.send_bytes(subscriptions(range(1000)))
    holder.take_frames()
    core.clock.work_per_look = BUSY
    holder.send_bytes(
        frame({"c": "unsubscribe", "sub_id": "all", "cid": "end", "a": "processed"})
        + frame({"c": "subscribe", "sub_id": "0", "t": "orders", "cid": "anew", "a": "processed"})
    )
    turns = 0
    while holder.is_paused:
        publisher.send({"c": "publish", "t": "orders", "cid": "1"}, b"%d" % turns)
        core.clock.turn()
        turns += 1
    publisher.send({"c": "publish", "t": "orders", "cid": "1"}, b"last")
    received = holder.take_frames()
    acks = [header["cid"] for header, _ in received if header["c"] == "ack"]
    listeners = [len(header["sids"].split(",")) for header, _ in received if header["c"] == "p"]
    assert acks == ["end", "anew"]
    assert turns > 5
    assert listeners == sorted(listeners, reverse=True)
    assert all(before - after <= 200 for before, after in pairwise(listeners))
    assert received[-1][0]["sids"] == "0"


def records(count: int) -> bytes:
    """Publishes of as many records."""
    return b"".join(
        frame({"c": "p", "t": "records"}, b'{"id":%d,"old":1}' % number) for number in range(count)
    )


def bodies_of(core: Core, peer: CorePeer) -> list[dict[str, int]]:
    """The records that there are."""
    peer.take_frames()
    peer.send({"c": "sow", "cid": "q", "t": "records", "bs": 1})
    core.clock.advance(0)
    results = [body for header, body in peer.take_frames() if header["c"] == "sow"]
    return [json.loads(result[result.index(b"}") + 1 :]) for result in results]


@pytest.mark.parametrize("is_recorded", [False, True])
def test_a_deletion_by_filter_takes_turns(core: Core, tmp_path: Path, is_recorded: bool) -> None:
    """What has been published meanwhile stays; what its client asks for after it comes after it."""
    core.clock.work_per_look = 0.0
    if is_recorded:
        core.record(tmp_path, "^records$")
    deleter, publisher = log_on(core, "deleter"), log_on(core, "publisher")
    publisher.send({"c": "subscribe", "sub_id": "1", "t": "records", "o": "oof"})
    deleter.send_bytes(records(3000))
    core.clock.advance(0)
    publisher.take_frames()
    core.clock.work_per_look = BUSY
    deletion = {"c": "sow_delete", "t": "records", "f": "/old = 1", "cid": "d", "s": 1}
    deleter.send_bytes(
        frame({**deletion, "a": "processed,stats"})
        + frame({"c": "p", "t": "records"}, b'{"id":1,"after":1}')
    )
    turns, gone = 0, []
    while deleter.is_paused:
        publisher.send({"c": "p", "t": "records"}, b'{"id":%d,"new":1}' % (2999 - turns))
        core.clock.turn()
        gone.append(sum(header["c"] == "oof" for header, _ in publisher.take_frames()))
        turns += 1
    core.clock.work_per_look = 0.0
    published = turns
    assert turns > 10
    assert max(gone) <= 500
    left = bodies_of(core, publisher)
    assert {one["id"] for one in left if "new" in one} == set(range(3000 - published, 3000))
    assert [one for one in left if "new" not in one] == [{"id": 1, "after": 1}]
    (stats,) = [header for header, _ in deleter.take_frames() if header.get("a") == "stats"]
    assert (stats["matches"], stats["topic_matches"]) == (3000, 3000)
    assert 3000 - published <= stats["records_deleted"] <= 3000
    if is_recorded:
        core.transaction_log.close()


def test_a_deletion_that_is_cut_short_does_not_count(core: Core, tmp_path: Path) -> None:
    """A client that is disconnected meanwhile may send it again: the log has not its number."""
    core.clock.work_per_look = 0.0
    core.record(tmp_path, "^records$")
    deleter = log_on(core, "deleter")
    deleter.send_bytes(records(1000))
    core.clock.work_per_look = BUSY
    deletion = {"c": "sow_delete", "t": "records", "f": "1=1", "cid": "d", "s": 1}
    deleter.send({**deletion, "a": "processed"})
    assert deleter.is_paused
    core.clock.turn()
    next(iter(core.engine.sessions)).close("connection closed")
    core.clock.advance(0)
    core.clock.work_per_look = 0.0
    again = log_on(core, "deleter")
    left = len(bodies_of(core, again))
    assert 0 < left < 1000
    again.send({**deletion, "a": "processed,stats"})
    core.clock.advance(0)
    acks = [header for header, _ in again.take_frames()]
    assert [ack["status"] for ack in acks] == ["success", "success"]
    assert acks[1]["records_deleted"] == left
    again.send_bytes(records(100))
    again.send({**deletion, "a": "processed"})
    assert [header["reason"] for header, _ in again.take_frames()] == ["duplicate"]
    assert len(bodies_of(core, again)) == 100
    core.transaction_log.close()


def test_a_deletion_counts_if_any_of_its_topics_is_recorded(core: Core, tmp_path: Path) -> None:
    """Also if others come behind that one."""
    core.clock.work_per_look = 0.0
    core.keep(topic_spec("/id", name="others"))
    core.record(tmp_path, "^records$")
    deleter = log_on(core, "deleter")
    deleter.send_bytes(records(2) + frame({"c": "p", "t": "others"}, b'{"id":1}'))
    deletion = {"c": "sow_delete", "t": "^(records|others)$", "f": "1=1", "s": 1, "a": "processed"}
    deleter.send(deletion)
    deleter.send(deletion)
    answers = [header.get("reason", header["status"]) for header, _ in deleter.take_frames()]
    assert answers == ["success", "duplicate"]
    core.transaction_log.close()
