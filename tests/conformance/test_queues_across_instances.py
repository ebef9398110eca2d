"""A queue that several instances replicate is one queue (AMPS User Guide, Replicated Queues)."""

from __future__ import annotations

import select
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.replication.topologies import Topology, both
from tests.support.cluster import PAIR, Cluster, Instance, cluster
from tests.support.queues import bookmarks, consume, done, make_safe, numbers, put, queue, take
from tests.support.raw import RawPeer
from tests.support.waiting import WAIT_SECONDS, wait_until

CHAIN = Topology("chain", both(("A", "B"), ("B", "C")), (("A",),))

PROXIED = """
<Actions>
  <Action>
    <On>
      <Module>amps-action-on-publish-message</Module>
      <Options><Topic>act-for-others</Topic><MessageType>json</MessageType></Options>
    </On>
    <Do>
      <Module>amps-action-do-enable-proxied-transfer</Module>
      <Options><Topic>jobs</Topic><MessageType>json</MessageType></Options>
    </Do>
  </Action>
</Actions>
"""


@contextmanager
def sharing(
    directory: Path, topology: Topology = PAIR, elements: str = "", **options: str | int
) -> Iterator[Cluster]:
    """Instances that are up and share the queue `jobs`, fed by `in-jobs`."""
    elements = f"<SOW>{queue('jobs', options)}</SOW>{elements}"
    with cluster(directory, topology, elements=elements) as instances:
        instances.start()
        for one in instances:
            links = sum(link.source == one.name for link in topology.links)
            assert one.server.waits_for(lambda log: log.count("21-0001") >= links)  # noqa: B023 - waited for at once
        yield instances


def depth(instances: Cluster, name: str) -> int:
    """How many messages of the queue an instance has that nobody has leased, and are its own."""
    with instances[name].server.log_on("looker") as peer:
        ack = peer.ask({"c": "sow", "cid": "q", "t": "jobs", "bs": 1, "a": "stats"})
        while ack["c"] != "ack":
            ack = peer.receive()[0]
        return int(ack["matches"])


def work_off(peer: RawPeer, count: int) -> list[int]:
    """Take messages and acknowledge each."""
    found = []
    for _ in range(count):
        messages = take(peer, 1)
        found += numbers(messages)
        peer.send({"c": "sow_delete", "t": "jobs", "bm": bookmarks(messages)})
    return found


@pytest.mark.parametrize("element", ["Queue", "GroupLocalQueue"])
@pytest.mark.parametrize("semantics", ["at-least-once", "at-most-once"])
def test_messages_go_to_whoever_has_consumers(tmp_path: Path, element: str, semantics: str) -> None:
    options: dict[str, str | int] = {"element": element, "Semantics": semantics}
    if element == "GroupLocalQueue":
        options["InitialOwner"] = "A"
    with sharing(tmp_path, PAIR, "", **options) as instances:
        put(instances["A"].server, "in-jobs", range(20))
        with instances["B"].server.log_on("worker") as worker:
            consume(worker, "jobs", 5)
            assert sorted(work_off(worker, 20)) == list(range(20))
            put(instances["B"].server, "in-jobs", range(20, 30))
            assert sorted(work_off(worker, 10)) == list(range(20, 30))
            make_safe(instances["B"].server)
            assert worker.hears_nothing()


def test_each_message_goes_to_one_consumer_of_all(tmp_path: Path) -> None:
    with sharing(tmp_path) as instances, ExitStack() as stack:
        workers = []
        for name in ("A", "B"):
            worker = stack.enter_context(instances[name].server.log_on(f"worker {name}"))
            consume(worker, "jobs", 1)
            workers.append(worker)
        put(instances["A"].server, "in-jobs", range(10))
        put(instances["B"].server, "in-jobs", range(10, 20))
        found: list[int] = []
        sockets = {worker.socket: worker for worker in workers}
        while len(found) < 20:  # whoever is idle may get what the other one has no room for
            ready, _, _ = select.select(list(sockets), [], [], WAIT_SECONDS)
            assert ready, f"only {found} have come"
            found += [number for one in ready for number in work_off(sockets[one], 1)]
        assert sorted(found) == list(range(20))
        for worker in workers:
            worker.send({"c": "flush", "cid": "f", "a": "persisted"})
            assert worker.receive()[0]["a"] == "persisted"
            assert worker.hears_nothing()


def test_a_word_finds_its_way_through_other_instances(tmp_path: Path) -> None:
    with sharing(tmp_path, CHAIN) as instances:
        put(instances["A"].server, "in-jobs", range(10))
        with instances["C"].server.log_on("worker") as worker:
            consume(worker, "jobs", 10, filter="/n > 3")
            assert sorted(work_off(worker, 6)) == list(range(4, 10))
            assert worker.hears_nothing()
        with instances["B"].server.log_on("worker") as worker:
            consume(worker, "jobs", 10)
            assert sorted(work_off(worker, 4)) == list(range(4))


def test_what_is_acknowledged_elsewhere_is_done_here(tmp_path: Path) -> None:
    with sharing(tmp_path) as instances:
        put(instances["A"].server, "in-jobs", range(3))
        with instances["A"].server.log_on("worker") as worker:
            consume(worker, "jobs", 2)
            taken = take(worker, 2)
            with instances["B"].server.log_on("watcher") as watcher:
                # What is done before B has heard of it is not among those that are counted.
                watcher.send({"c": "subscribe", "cid": "w", "t": "in-jobs", "bm": "0"})
                assert numbers([watcher.receive() for _ in range(3)]) == [0, 1, 2]
            with instances["B"].server.log_on("other") as other:
                assert done(other, "jobs", bm=bookmarks(taken)) == 2
            # What it had is gone, so that it has room.
            assert numbers(take(worker, 1)) == [2]
            assert worker.hears_nothing()


def test_an_acknowledgement_survives_the_instance_that_delivered(tmp_path: Path) -> None:
    with sharing(tmp_path) as instances:
        put(instances["A"].server, "in-jobs", range(2))
        make_safe(instances["A"].server)
        with instances["A"].server.log_on("worker") as worker:
            consume(worker, "jobs", 1)
            taken = take(worker, 1)
        instances["A"].kill()
        with instances["B"].server.log_on("worker") as worker:
            assert done(worker, "jobs", bm=bookmarks(taken)) == 1
        instances.start()
        wait_until(lambda: depth(instances, "A") == 1, instances.logs)
        with instances["A"].server.log_on("worker") as worker:
            consume(worker, "jobs", 10)
            assert numbers(take(worker, 1)) == [1]
            assert worker.hears_nothing()


def test_messages_of_an_owner_that_is_gone_wait_unless_somebody_acts_for_it(tmp_path: Path) -> None:
    with sharing(tmp_path, elements=PROXIED) as instances:
        put(instances["A"].server, "in-jobs", range(3))
        make_safe(instances["A"].server)
        instances["A"].kill()
        server = instances["B"].server
        with server.log_on("worker") as worker:
            consume(worker, "jobs", 2)
            assert worker.hears_nothing()
            put(server, "act-for-others", ["{}"])
            assert server.logs("1D-0027")
            assert sorted(work_off(worker, 3)) == [0, 1, 2]
        instances.start()
        wait_until(lambda: depth(instances, "A") == 0, instances.logs)


def test_a_local_queue_is_of_one_instance(tmp_path: Path) -> None:
    with sharing(tmp_path, element="LocalQueue") as instances:
        put(instances["A"].server, "in-jobs", range(5))
        for name in ("A", "B"):
            with instances[name].server.log_on("worker") as worker:
                consume(worker, "jobs", 10)
                assert work_off(worker, 5) == list(range(5)), name


def test_a_started_instance_knows_what_others_own(tmp_path: Path) -> None:
    with sharing(tmp_path) as instances:
        put(instances["A"].server, "in-jobs", range(4))
        with instances["B"].server.log_on("worker") as worker:
            consume(worker, "jobs", 2)
            taken = take(worker, 2)
            instances["A"].stop()
            instances.start()
            with instances["A"].server.log_on("other") as other:
                consume(other, "jobs", 10)
                assert sorted(numbers(take(other, 2)) + numbers(taken)) == list(range(4))
                assert other.hears_nothing()


def logged(instance: Instance, topic: str) -> list[dict[str, Any]]:
    """The headers of what has been recorded of a topic."""
    with instance.server.log_on("auditor") as peer:
        peer.send({"c": "subscribe", "sub_id": "a", "t": topic, "bm": "0", "a": "completed"})
        found = []
        while (header := peer.receive()[0])["c"] != "ack":
            found.append(header)
        return found


def give_up(instance: Instance, mark: str) -> None:
    """Have a message expire, wherever it is owned."""
    with instance.server.log_on("manager") as peer:
        command = {"c": "sow_delete", "cid": "d", "t": "jobs", "bm": mark, "o": "expire"}
        assert peer.ask(command | {"a": "persisted"})["status"] == "success"


def test_what_is_given_up_at_two_instances_that_are_apart_has_two_letters(tmp_path: Path) -> None:
    """Of one message, which both say; while they see each other there is one."""
    with sharing(tmp_path, PAIR, "", DeadLetterTopic="letters") as instances:
        put(instances["A"].server, "in-jobs", range(2))
        wait_until(lambda: len(logged(instances["B"], "in-jobs")) == 2)
        apart, together = (header["bm"] for header in logged(instances["A"], "in-jobs"))
        give_up(instances["A"], together)
        for one in instances:
            wait_until(lambda: len(logged(one, "letters")) == 1)  # noqa: B023 - called at once
        give_up(instances["B"], together)
        instances.network.part("A", "B")
        for one in instances:
            with one.server.log_on("manager") as peer:
                peer.send({"c": "sow_delete", "t": "jobs", "bm": apart, "o": "expire"})
                wait_until(lambda: len(logged(one, "letters")) == 2)  # noqa: B023 - called at once
        instances.network.heal()
        for one in instances:
            wait_until(lambda: len(logged(one, "letters")) == 3)  # noqa: B023 - called at once
            said = [header["x"].rpartition("bookmark=")[2] for header in logged(one, "letters")]
            assert said == [together, apart, apart]
