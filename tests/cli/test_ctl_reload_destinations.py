"""`amps-ctl reload`: replication destinations are added, removed and changed."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.admin.support import Admin, running_admin
from tests.cli.reload_support import edit, refused, reloaded
from tests.cli.test_ctl import ctl
from tests.cli.test_ctl_drain import LOG, QUEUE
from tests.conformance.test_replication_destinations import publish
from tests.replication.topologies import Link, Topology
from tests.support.cluster import DOWNGRADE, Cluster, Instance, cluster
from tests.support.raw import QUICK_ACKS, RawPeer
from tests.support.server import free_port
from tests.support.waiting import wait_until

STAR: Final = Topology("star", (Link("A", "B"), Link("A", "C")), ())
ADMIN: Final = "<Admin><InetAddr>127.0.0.1:{}</InetAddr><Interval>1s</Interval></Admin>"
RELINKED: Final = "all links of replication are closed and made again: "
END: Final = "</Replication>"


@dataclass(frozen=True)
class Star:
    """A, which replicates to B and C.

    Attributes:
        instances: all of them.
        port: the admin interface of A.
        elements: the destinations of A, by name.
    """

    instances: Cluster
    port: int
    elements: dict[str, str]

    def __getitem__(self, name: str) -> Instance:
        return self.instances[name]

    @property
    def admin(self) -> Admin:
        """The admin interface of A."""
        return Admin(self.port, self["A"].server)

    def change(self, old: str, new: str) -> list[str]:
        """Edit the configuration of A and reload it."""
        edit(self.admin, old, new)
        return reloaded(self.admin)

    def other_way_to_b(self) -> int:
        """Another port that leads to where B accepts replication."""
        text = (self["B"].directory / "config.xml").read_text()
        port = int(re.findall(r"<InetAddr>127\.0\.0\.1:(\d+)", text)[1])
        return self.instances.network.lead("A", "B, by another way", port)

    def destinations(self) -> set[str]:
        """The destinations that can be operated."""
        return set(ctl(self.admin, "replication", "list").stdout.split())


@pytest.fixture
def star(tmp_path: Path) -> Iterator[Star]:
    """Nothing but A and B is up, and nothing is replicated to C."""
    port = free_port()
    with cluster(tmp_path, STAR, of_each={"A": ADMIN.format(port)}) as instances:
        file = instances["A"].directory / "config.xml"
        text = file.read_text()
        elements = re.findall(r"<Destination>.*?</Destination>", text, re.DOTALL)
        file.write_text(text.replace(elements[1], ""))
        for name in ("A", "B"):
            instances[name].start()
        yield Star(instances, port, dict(zip(("B", "C"), elements, strict=True)))


def publisher_at(instance: Instance) -> RawPeer:
    """A publisher whose messages are acknowledged at once."""
    return instance.server.log_on("publisher", a="processed", o=QUICK_ACKS)


@contextmanager
def publishing(star: Star) -> Iterator[Callable[[], int]]:
    """Publish at A meanwhile, message by message; gives how many have been acknowledged."""
    acknowledged, is_over = 0, threading.Event()

    def run() -> None:
        nonlocal acknowledged
        with publisher_at(star["A"]) as peer:
            while not is_over.is_set():
                publish(peer, "orders", acknowledged + 1)
                acknowledged += 1

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield lambda: acknowledged
    finally:
        is_over.set()
        thread.join()


def wait_for_more(acknowledged: Callable[[], int], count: int = 1) -> None:
    """Wait until so many more messages have been acknowledged."""
    before = acknowledged()
    wait_until(lambda: acknowledged() >= before + count)


def log_of(instance: Instance) -> list[tuple[str, str, bytes]]:
    """All messages of an instance, in its order."""
    with instance.server.log_on("auditor") as peer:
        peer.send({"c": "subscribe", "sub_id": "a", "t": ".*", "bm": "0", "a": "completed"})
        log = []
        while (received := peer.receive())[0]["c"] != "ack":
            header, body = received
            log.append((header["bm"], header["t"], body))
    return log


def test_an_added_destination_gets_what_the_log_has(star: Star) -> None:
    star["C"].start()
    with publisher_at(star["A"]) as publisher:
        for number in range(1, 4):
            publish(publisher, "orders", number)
        edit(star.admin, END, star.elements["C"] + END)
        planned = ctl(star.admin, "reload", "--dry-run").stdout.splitlines()
        assert planned[0].startswith("Replication/Destination C is added (")
        assert planned[1:] == [f"{RELINKED}1"]
        assert star.destinations() == {"B"}
        assert reloaded(star.admin) == [*planned, "1 difference applied."]
        assert star.destinations() == {"B", "C"}
        for number in range(4, 7):
            publish(publisher, "orders", number)
    assert len(log_of(star["A"])) == 6
    assert log_of(star["C"]) == log_of(star["B"]) == log_of(star["A"])
    star.admin.comes("/amps/instance/replication/C/is_connected", "1")
    star.admin.comes("/amps/instance/replication/C/messages_out", "6")
    star.change(star.elements["C"], "")
    wait_until(lambda: '"C"' not in star.admin.ask("/amps/instance/replication.json").text)
    star.admin.comes("/amps/instance/processors/replication/matches_found", "12")


def test_a_removed_destination_holds_back_no_acknowledgement(star: Star) -> None:
    star.change(END, star.elements["C"] + END)
    with publisher_at(star["A"]) as publisher:
        publisher.send({"c": "publish", "t": "orders", "s": 1, "a": "persisted"}, b'{"id":1}')
        assert publisher.hears_nothing()
        lines = star.change(star.elements["C"], "")
        assert lines[0].startswith("Replication/Destination C is removed (")
        assert int(publisher.receive_header()["s"]) == 1
        assert star.destinations() == {"B"}
        wait_until(lambda: '"C"' not in star.admin.ask("/amps/instance/replication.json").text)
        star.change(END, star.elements["C"] + END)
        star["C"].start()
        publish(publisher, "orders", 2)
    assert log_of(star["C"]) == log_of(star["A"])


def test_the_number_of_destinations_that_stay_sync_changes(star: Star) -> None:
    number = "<MinSyncDestinations>1</MinSyncDestinations>"
    tuning = f"<Tuning><Replication>{number}</Replication></Tuning>"
    actions = DOWNGRADE.format(every="200ms", age="300ms")
    lines = star.change("</AMPSConfig>", f"{tuning}{actions}</AMPSConfig>")
    assert not any(line.startswith(RELINKED) for line in lines)
    star["B"].kill()
    with publisher_at(star["A"]) as publisher:
        publisher.send({"c": "publish", "t": "orders", "s": 1, "a": "persisted"}, b'{"id":1}')
        assert star["A"].server.logs("1E-0024")
        star.change(tuning, "")
        assert int(publisher.receive_header()["s"]) == 1


def test_nothing_is_lost_or_comes_twice_while_destinations_change(star: Star) -> None:
    b = star.elements["B"]
    (address,) = re.findall(r"127\.0\.0\.1:\d+", b)
    star["C"].start()
    port = star.other_way_to_b()
    with publishing(star) as acknowledged:
        for old, new in (
            ("<SyncType>sync", "<SyncType>async"),
            ("<Topic>", "<Compression>zlib</Compression><Topic>"),
            ("<SyncType>async", "<SyncType>sync"),
            ("<Name>.*</Name>", "<Name>^(orders|trades)$</Name>"),
            (END, star.elements["C"] + END),
            ("</Topic>\n      <Transport>", "<Filter>/n > 0</Filter></Topic>\n      <Transport>"),
            (address, f"127.0.0.1:{port}"),
        ):
            text = b if old != END else END
            changed = text.replace(old, new)
            assert changed != text
            star.change(text, changed)
            b = b if old == END else changed
            wait_for_more(acknowledged)
    assert log_of(star["B"]) == log_of(star["A"])
    assert log_of(star["C"]) == log_of(star["A"])
    assert len(log_of(star["A"])) >= acknowledged()
    star.admin.comes("/amps/instance/replication/B/is_connected", "1")


def test_a_destination_without_a_name_moves_to_another_address(star: Star) -> None:
    b = re.sub(r"\s*<(Name>B|Group>B)</\w+>", "", star.elements["B"])
    star.change(star.elements["B"], b)
    port = star.other_way_to_b()
    with publisher_at(star["A"]) as publisher:
        publish(publisher, "orders", 1)
        star.change(b, re.sub(r"127\.0\.0\.1:\d+", f"127.0.0.1:{port}", b))
        assert star.destinations() == {f"127.0.0.1:{port}"}
        publish(publisher, "orders", 2)
    assert log_of(star["B"]) == log_of(star["A"])


def test_topics_that_are_added_are_sent_from_the_begin_of_the_log(star: Star) -> None:
    b = star.elements["B"]
    only_orders = b.replace("<Name>.*</Name>", "<Name>orders</Name>")
    star.change(b, only_orders)
    with publisher_at(star["A"]) as publisher:
        for number, topic in enumerate(("orders", "trades", "orders"), 1):
            publish(publisher, topic, number)
        assert [topic for _, topic, _ in log_of(star["B"])] == ["orders", "orders"]
        star.change(only_orders, b)
        publish(publisher, "trades", 4)
    assert sorted(log_of(star["B"])) == sorted(log_of(star["A"]))


def test_an_acknowledged_message_survives_the_end_of_either_process(star: Star) -> None:
    star["C"].start()
    with publishing(star) as acknowledged:
        star.change(END, star.elements["C"] + END)
        wait_for_more(acknowledged, 20)
        star["C"].kill()
        star["C"].start()
        wait_for_more(acknowledged, 20)
    count = acknowledged()
    with publisher_at(star["A"]) as publisher:
        star.change(star.elements["B"], "")
        publish(publisher, "orders", count + 1)
    star["A"].kill()
    assert len(log_of(star["C"])) == count + 1
    star["A"].start()
    with publisher_at(star["A"]) as publisher:
        publish(publisher, "orders", count + 2)
    assert log_of(star["C"]) == log_of(star["A"])
    assert len(log_of(star["A"])) == count + 2


def test_a_dry_run_tells_that_instances_will_refuse_each_other(star: Star) -> None:
    with publisher_at(star["A"]) as publisher:
        publish(publisher, "orders", 1)
    b = star.elements["B"]
    edit(star.admin, b, b.replace(",replicate</Exclude", "</Exclude"))
    lines = ctl(star.admin, "reload", "--dry-run").stdout.splitlines()
    assert any(
        line.startswith("A will not replicate to B: ") and "replicate" in line for line in lines
    )


def test_an_unusable_destination_refuses_all(star: Star) -> None:
    b = star.elements["B"]
    secure = "<Type>amps-replication-secure</Type><VerifyClient>true</VerifyClient>"
    edit(
        star.admin,
        b,
        b.replace("<Type>amps-replication</Type>", f"{secure}<CAFile>none.pem</CAFile>"),
    )
    assert "connections to B cannot be secured" in refused(star.admin)
    with publisher_at(star["A"]) as publisher:
        publish(publisher, "orders", 1)


DESTINATION: Final = """
<Replication><Destination>
  <Name>B</Name><Topic><Name>{topic}</Name><MessageType>json</MessageType></Topic>
  <Transport><Type>amps-replication</Type><InetAddr>127.0.0.1:1</InetAddr></Transport>
</Destination></Replication>
"""


def test_replication_begins_at_a_start(tmp_path: Path) -> None:
    with running_admin(tmp_path, elements=LOG) as admin:
        edit(admin, "</AMPSConfig>", DESTINATION.format(topic="jobs") + "</AMPSConfig>")
        assert "an instance begins to take part in replication at a start" in refused(admin)


def test_queues_are_shared_from_a_start_on(tmp_path: Path) -> None:
    queue = QUEUE.replace("LocalQueue", "Queue")
    elements = LOG + queue + DESTINATION.format(topic="jobs")
    with running_admin(tmp_path, elements=elements) as admin:
        edit(admin, "<Name>jobs</Name>", "<Name>^(jobs|work)$</Name>")
        assert "queue work begins or ceases to be shared at a start" in refused(admin)


MODULE: Final = """
<Modules><Module>
  <Name>said</Name><Library>libamps_exec_authenticator.so</Library>
</Module></Modules>
"""
CREDENTIALS: Final = """
<Authenticator><Module>said</Module>
  <Options><UserName>{user}</UserName><Command>echo secret</Command></Options></Authenticator>
"""


def test_a_destination_logs_on_with_other_credentials(star: Star) -> None:
    b = before = star.elements["B"]
    edit(star.admin, "</AMPSConfig>", f"{MODULE}</AMPSConfig>")
    for user in ("one", "two"):
        changed = b.replace("<InetAddr>", CREDENTIALS.format(user=user) + "<InetAddr>")
        star.change(before, changed)
        before = changed
        star.admin.comes("/amps/instance/replication/B/authenticated_id", user)
    star.admin.comes("/amps/instance/replication/B/is_connected", "1")
    edit(star.admin, before, b)
    assert any(
        line.startswith("Modules/Module said is removed") for line in star.change(MODULE, "")
    )
