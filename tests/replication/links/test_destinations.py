"""Destinations: what of the log is for them, how long it stays, and what actions do about them."""

from __future__ import annotations

from pathlib import Path

import pytest

from actions.registry import TRIGGERS
from server.replication.links.link_events import LinkDirection, LinkEvent
from tests.actions.support import Bench, Use, echo, options
from tests.replication.links.members import Member, carry, destination
from tests.replication.links.test_settlement import publish

FILLER = b'{"text":"%s"}' % (b"x" * 60_000)


def test_only_what_matches_the_filter_goes(tmp_path: Path) -> None:
    """A message that cannot be read does not match; a deletion goes wherever its topic does."""
    text = "<Filter>/id &gt; 2 AND TOPIC_NAME() = 'orders'</Filter>"
    a, b = Member(tmp_path, "a", destination("b", elements=text)), Member(tmp_path, "b")
    publisher = a.client()
    for body in (b'{"id":1}', b'{"id":3}', b"no message", b'{"id":4}'):
        publish(publisher, "orders", body)
        publish(publisher, "orders_more", body)
    carry(a, b)
    assert [entry.body for entry in b.entries()] == [b'{"id":3}', b'{"id":4}']
    assert a.sender("b").settled_txid == a.core.transaction_log.last_txid
    a.close()
    b.close()


def test_journals_stay_until_each_destination_has_them(tmp_path: Path) -> None:
    a = Member(tmp_path, "a", destination("b") + destination("c", "async"))
    b, c = Member(tmp_path, "b"), Member(tmp_path, "c")
    publisher = a.client()
    for _ in range(40):
        publish(publisher, "orders", FILLER)
    carry(a, b)
    a.core.clock.advance(3)
    log = a.core.transaction_log
    full = log.journal.files[0]
    assert full.end_txid is not None
    assert log.needed_from <= full.first_txid
    log.notify_holders(full.path, full.end_txid)
    log.notify_holders(full.path, full.end_txid)
    (said,) = a.said("21-0021")
    assert (said["destination"], said["after"], said["state"]) == (
        "c",
        full.first_txid - 1,
        "not connected",
    )
    assert str(said["age"]) == "0:00:03"
    carry(a, c)
    a.core.wait_for_helper()
    a.store()
    assert log.needed_from >= full.end_txid
    for member in (a, b, c):
        member.close()


def bench(member: Member) -> Bench:
    """Something that runs actions of an instance."""
    found = Bench()
    found.core = member.core
    found.services.engine = member.core.engine
    found.services.replication = member.replication
    return found


def change(kind: str, age: str, grace: str | None = None) -> Use:
    given: dict[str, str | list[str]] = {"Age": age}
    if grace is not None:
        given["GracePeriod"] = grace
    return f"amps-action-do-{kind}-replication", given


def test_actions_downgrade_and_upgrade_by_age(tmp_path: Path) -> None:
    a, b = Member(tmp_path, "a", destination("b")), Member(tmp_path, "b")
    actions = bench(a)
    actions.add(None, change("downgrade", "{{AGE}}", "60s"), change("upgrade", "2s"))
    publish(a.client())
    a.core.commit()
    downgraded = a.replication.ack_tracker.downgraded_destinations
    a.core.clock.advance(50)
    actions.perform(AGE=b"5s")
    assert downgraded == set()  # so soon after the start nothing is changed
    a.core.clock.advance(15)
    actions.perform(AGE=b"100s")
    assert downgraded == set()
    actions.perform(AGE=b"5s")
    assert downgraded == {"b"}
    carry(a, b)
    actions.perform(AGE=b"5s")
    assert downgraded == set()
    actions.perform(AGE=b"soon")
    (failure,) = a.said("29-0101")
    assert "Age" in str(failure["reason"])
    a.close()
    b.close()


WAY = LinkDirection("a!b@g!sync!amps-replication", "b", "g", "10.0.0.1:9", "out")


@pytest.mark.parametrize("event", LinkEvent)
def test_actions_run_on_what_happens_to_links(tmp_path: Path, event: LinkEvent) -> None:
    a = Member(tmp_path, "a", destination("b"))
    actions = bench(a)
    is_incoming = "incoming" in event.value
    names = ["PEER_NAME", "CLIENT_NAME", "REMOTE_ADDRESS", "GROUP_NAME"]
    if not is_incoming:
        names.append("TRANSPORT_NAME")
    variables = " ".join(f"{{{{AMPS_REPLICATION_{name}}}}}" for name in names)
    actions.add((f"amps-action-on-{event.value}", {}), echo(variables))

    def happen() -> None:
        for one in LinkEvent:
            a.replication.events.notify(one, WAY)

    actions.run(happen)
    expected = [WAY.peer, WAY.client, WAY.address, WAY.group, WAY.transport]
    assert actions.echoes() == [" ".join(expected[: len(names)])]
    a.close()


def test_triggers_of_links_never_run_without_replication() -> None:
    actions = Bench()
    for event in LinkEvent:
        trigger = TRIGGERS[f"amps-action-on-{event.value}"](options({}))
        trigger.provision(actions.services, actions.add(None, echo("never")))
