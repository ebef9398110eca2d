"""A pair of servers: what is told to publishers when one of them goes, and when it is back."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from server.replication.core import unpack
from tests.support.cluster import ORDERS, PAIR, Cluster, Instance, cluster
from tests.support.raw import QUICK_ACKS, RawPeer
from tests.support.server import RunningServer
from tests.support.waiting import comes_true

ACTIONS = """
<Actions>
  <Action>
    <On><Module>amps-action-on-schedule</Module><Options><Every>1s</Every></Options></On>
    <Do>
      <Module>amps-action-do-downgrade-replication</Module><Options><Age>2s</Age></Options>
    </Do>
    <Do>
      <Module>amps-action-do-upgrade-replication</Module><Options><Age>1s</Age></Options>
    </Do>
  </Action>
  {triggers}
</Actions>
"""
TRIGGER = """
  <Action>
    <On><Module>amps-action-on-{event}-replication</Module></On>
    <Do>
      <Module>amps-action-do-echo-message</Module>
      <Options>
        <Message>{event} {{{{{peer}_PEER_NAME}}}} {{{{{peer}_CLIENT_NAME}}}}</Message>
      </Options>
    </Do>
  </Action>
"""
REMOVING = """
<Actions>
  <Action>
    <On><Module>amps-action-on-signal</Module><Options><Signal>SIGUSR1</Signal></Options></On>
    <Do><Module>amps-action-do-remove-journal</Module><Options><Age>0s</Age></Options></Do>
  </Action>
</Actions>
"""
QUEUE = """
<SOW><Queue><Name>jobs</Name><MessageType>json</MessageType></Queue></SOW>
"""
EVENTS = ("connect", "disconnect", "downgrade", "upgrade", "connect-incoming")


@contextmanager
def publisher_at(pair: Cluster, name: str) -> Iterator[RawPeer]:
    """The same publisher, wherever it is."""
    with pair[name].server.log_on("publisher", a="processed", o=QUICK_ACKS) as peer:
        yield peer


def publish(peer: RawPeer, number: int, size: int = 1) -> None:
    header = {"c": "publish", "t": "orders", "s": number, "a": "persisted"}
    peer.send(header, b'{"id": %d, "text": "%s"}' % (number, b"x" * size))


def acknowledged(peer: RawPeer) -> int:
    """The number that the next persisted ack acknowledges."""
    header = peer.receive_header()
    assert (header["c"], header["a"], header["status"]) == ("ack", "persisted", "success")
    return int(header["s"])


def said(server: RunningServer, text: str, times: int) -> bool:
    """Whether something has been logged so often, or oftener."""
    return server.log().count(text) >= times


def lacking(instance: Instance, destination: str) -> int | None:
    """Return how many entries a destination lacks by what is stored; None if nothing is yet."""
    path = instance.directory / "journal" / f"{instance.name}.replication.ack"
    remembered = unpack(path.read_bytes())
    return (
        remembered.txid - remembered.acknowledged[destination]
        if remembered.publisher_windows
        else None
    )


def is_remembered(instance: Instance, destination: str) -> bool:
    """Whether it is stored that a destination has everything."""
    return lacking(instance, destination) == 0


def test_a_publisher_waits_until_the_other_one_is_back(tmp_path: Path) -> None:
    """And so does a fully durable subscriber; a restart in between makes no difference."""
    with cluster(tmp_path, PAIR) as pair:
        pair.start()
        with publisher_at(pair, "A") as publisher:
            publish(publisher, 1)
            assert acknowledged(publisher) == 1
            assert comes_true(lambda: is_remembered(pair["A"], "B"))
            pair["B"].kill()
            publish(publisher, 2)
            assert publisher.hears_nothing()
        pair["A"].kill()
        pair["A"].start()
        with (
            publisher_at(pair, "A") as publisher,
            pair["A"].server.log_on("subscriber") as subscriber,
        ):
            publish(publisher, 2)  # which is a duplicate
            publish(publisher, 3)
            subscriber.send(
                {"c": "subscribe", "t": "orders", "cid": "s", "bm": "0", "o": "fully_durable"}
            )
            _, body = subscriber.receive()
            assert b'"id": 1' in body
            assert publisher.hears_nothing()
            assert subscriber.hears_nothing()
            pair["B"].start()
            header = publisher.receive_header()
            assert (header["status"], header["reason"]) == ("failure", "duplicate")
            assert acknowledged(publisher) == 3
            assert [b'"id": 2' in subscriber.receive()[1], b'"id": 3' in subscriber.receive()[1]]


def test_a_destination_that_is_gone_is_downgraded_and_upgraded_when_it_is_back(
    tmp_path: Path,
) -> None:
    triggers = "".join(TRIGGER.format(event=event, peer="AMPS_REPLICATION") for event in EVENTS)
    elements = ORDERS + ACTIONS.format(triggers=triggers)
    with cluster(tmp_path, PAIR, elements=elements) as pair:
        pair.start()
        a = pair["A"].server
        with publisher_at(pair, "A") as publisher:
            publish(publisher, 1)
            assert acknowledged(publisher) == 1
            pair["B"].kill()
            publish(publisher, 2)
            assert acknowledged(publisher) == 2
            assert a.logs("29-0104 AMPS replication destination B downgraded from sync to async")
            publish(publisher, 3)
            assert acknowledged(publisher) == 3
            pair["B"].start()
            way = "A!B@pair!sync!amps-replication"
            assert a.logs(f"29-0105 AMPS replication destination {way} upgraded")
            pair["B"].kill()
            publish(publisher, 4)
            assert acknowledged(publisher) == 4
            assert a.logs("29-0104", times=2)
        for event in EVENTS[:4]:
            times = 1 if event == "upgrade" else 2  # or more: a link may be made anew
            assert comes_true(partial(said, a, f"29-0103 {event} B {way}", times))
        assert a.logs("29-0103 connect-incoming B B!A@pair!sync!amps-replication")


def test_journals_stay_for_a_destination_that_is_away(tmp_path: Path) -> None:
    with cluster(tmp_path, PAIR, elements=ORDERS + REMOVING) as pair:
        pair.start()
        pair["B"].kill()
        a = pair["A"]
        oldest = a.directory / "journal" / "A.0000000000.journal"
        with publisher_at(pair, "A") as publisher:
            for number in range(1, 13):
                publish(publisher, number, 1_000_000)
            assert a.server.logs("1D-0008")
            a.server.process.send_signal(signal.SIGUSR1)
            assert a.server.logs("because of replication destination B, which is not connected")
            assert oldest.exists()
            pair["B"].start()
            while acknowledged(publisher) < 12:
                pass
            assert a.server.logs("1D-0010")
            assert not oldest.exists()


def test_a_destination_that_lacks_what_was_in_removed_journals_is_named(tmp_path: Path) -> None:
    """Not one that had everything, and each once."""
    with cluster(tmp_path, PAIR) as pair:
        pair.start()
        a, b = pair["A"], pair["B"]
        with publisher_at(pair, "A") as publisher:
            publish(publisher, 1)
            assert acknowledged(publisher) == 1
            assert comes_true(lambda: is_remembered(a, "B"))
            b.kill()
            for number in range(2, 14):
                publish(publisher, number, 1_000_000)
            assert comes_true(lambda: (lacking(a, "B") or 0) >= 12)
        a.kill()
        for path in (a.directory / "journal").glob("A.0000000000.*"):
            path.unlink()
        a.start()
        assert said(a.server, "1D-0132 Replication destination B does not get the entries", 1)
        a.kill()
        a.start()
        b.start()
        assert not said(a.server, "1D-0132", 1)
        assert not said(b.server, "1D-0132", 1)


def test_what_a_consumer_has_acknowledged_is_persisted_when_the_other_one_has_it(
    tmp_path: Path,
) -> None:
    with cluster(tmp_path, PAIR, elements=QUEUE) as pair:
        pair.start()
        with pair["A"].server.log_on("consumer", a="processed", o=QUICK_ACKS) as consumer:
            consumer.send({"c": "subscribe", "t": "jobs", "cid": "s"})
            consumer.send({"c": "publish", "t": "jobs"}, b"{}")
            bookmark = consumer.receive()[0]["bm"]
            pair["B"].kill()
            command = {"c": "sow_delete", "t": "jobs", "bm": bookmark}
            consumer.send({**command, "cid": "d", "a": "processed,persisted"})
            assert consumer.receive_header()["a"] == "processed"
            assert consumer.hears_nothing()
            pair["B"].start()
            header = consumer.receive_header()
            assert (header["a"], header["status"]) == ("persisted", "success")


PAUSE_SECONDS: Final = 13.0
"""Longer than the silence after which a link is given up."""


def test_a_link_outlasts_a_pause_of_both_ends(tmp_path: Path) -> None:
    """As when the host of their virtual machines stands still: beats lie in the sockets."""
    with cluster(tmp_path, PAIR) as pair:
        pair.start()
        with publisher_at(pair, "A") as publisher:
            publish(publisher, 1)
            assert acknowledged(publisher) == 1
            for instance in pair:
                instance.freeze()
            time.sleep(PAUSE_SECONDS)
            for instance in pair:
                instance.thaw()
            publish(publisher, 2)
            assert acknowledged(publisher) == 2
        assert "no data received" not in pair.logs()
