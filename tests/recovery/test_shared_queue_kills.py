"""A queue on two instances, either of which dies: every message is worked off.

Publishers and workers have both instances as servers. A message may come twice only if it was on
its way when an instance died: to a worker, from one, or from its publisher to the other instance.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest

from amperage.client import ClientError, HAClient, PublishStore
from tests.client.shells import PATIENT
from tests.recovery.test_failover import replay
from tests.support.chances import chance_of
from tests.support.cluster import PAIR, Cluster, Instance, cluster
from tests.support.queues import queue
from tests.support.server import RunningServer
from tests.support.waiting import WAIT_SECONDS, wait_until

MESSAGES: Final = 1_500
ON_THE_WAY: Final = 100
BACKLOG: Final = 20


class Workshop:
    """What has been published, and what has come.

    Attributes:
        seen: how often each number has come.
    """

    def __init__(self) -> None:
        self.seen: Counter[int] = Counter()
        self.published = 0
        self.is_over = threading.Event()

    def publish(self, client: HAClient) -> None:
        for number in range(1, MESSAGES + 1):
            while len(client.publish_store) >= ON_THE_WAY and not self.is_over.is_set():
                time.sleep(0.002)
            if self.is_over.is_set():
                return
            client.publish("in-jobs", f'{{"n":{number}}}')
            self.published = number

    def work(self, client: HAClient) -> None:
        with client.subscribe("jobs", max_backlog=BACKLOG, auto_ack=True) as jobs:
            try:
                for job in jobs:
                    self.seen[job.json()["n"]] += 1
            except ClientError:
                pass  # the test is over


@contextmanager
def at_work(pair: Cluster) -> Iterator[tuple[Workshop, HAClient]]:
    """One publisher, and two workers that prefer different instances."""
    workshop = Workshop()
    with ExitStack() as stack:
        clients = []
        for name, order in (("publisher", "AB"), ("worker A", "AB"), ("worker B", "BA")):
            client = HAClient(
                pair.uris(*order),
                name,
                backoff=PATIENT,
                timeout=WAIT_SECONDS,
                publish_store=PublishStore() if name == "publisher" else None,
            )
            clients.append(stack.enter_context(client))
            client.connect()
            todo = workshop.publish if name == "publisher" else workshop.work
            threading.Thread(target=todo, args=(client,), daemon=True).start()
        try:
            yield workshop, clients[0]
        finally:
            workshop.is_over.set()


def fail_over(workshop: Workshop, dying: Instance, after: int) -> None:
    """Kill an instance when so many messages have come, and start it again."""
    wait_until(lambda: len(workshop.seen) >= after, lambda: f"{len(workshop.seen)} have come")
    dying.kill()
    time.sleep(0.2)
    dying.start()


def left(server: RunningServer) -> int:
    """How many messages are in the queue that this instance could deliver."""
    with server.log_on("auditor") as peer:
        ack = peer.ask({"c": "sow", "cid": "q", "t": "jobs", "a": "stats"})
        while ack["c"] != "ack":
            ack = peer.receive()[0]
        return int(ack["matches"])


@pytest.mark.long
@pytest.mark.timeout(300)
def test_either_instance_with_a_queue_may_die(tmp_path: Path) -> None:
    chance = chance_of()
    elements = f"<SOW>{queue('jobs', {})}</SOW>"
    with cluster(tmp_path, PAIR, elements=elements) as pair:
        pair.start()
        with at_work(pair) as (workshop, publisher):
            fail_over(workshop, pair["A"], chance.randrange(MESSAGES // 3))
            fail_over(workshop, pair["B"], chance.randrange(MESSAGES // 2, MESSAGES - 200))
            wait_until(lambda: workshop.published == MESSAGES, lambda: workshop.published)
            publisher.publish_flush(WAIT_SECONDS)
            wait_until(
                lambda: len(workshop.seen) == MESSAGES,
                lambda: f"{MESSAGES - len(workshop.seen)} lack\n{pair.logs()}",
            )
            wait_until(lambda: all(left(one.server) == 0 for one in pair), "the queue is not empty")
        twice = sum(workshop.seen.values()) - MESSAGES
        assert twice <= 2 * (ON_THE_WAY + 2 * BACKLOG), "more than was on its way"


@pytest.mark.timeout(300)
def test_what_was_published_at_both_belongs_to_one_when_they_have_met(tmp_path: Path) -> None:
    """Its publisher has moved before the first instance had replicated it: each comes once."""
    elements = f"<SOW>{queue('jobs', {})}</SOW>"
    count = 50
    with cluster(tmp_path, PAIR, elements=elements) as pair:
        pair.start()
        for instance in pair:
            with instance.server.log_on("first") as peer:
                peer.publish("other", b'{"n":0}')
        wait_until(lambda: all(len(replay(one.server, "other")) == 2 for one in pair))
        pair.network.part("A", "B")
        for instance in pair:
            with instance.server.log_on("publisher", a="processed") as peer:
                for n in range(1, count + 1):
                    peer.send({"c": "publish", "t": "in-jobs", "s": n}, b'{"n":%d}' % n)
            wait_until(lambda: left(instance.server) == count)  # noqa: B023 - called at once
        pair.network.heal()
        wait_until(lambda: sum(left(one.server) for one in pair) == count)
        for instance in pair:
            instance.kill()
            instance.start()
        wait_until(
            lambda: sum(left(one.server) for one in pair) == count,
            lambda: f"{[left(one.server) for one in pair]}\n{pair.logs()}",
        )
        with ExitStack() as stack:
            workshop = Workshop()
            for uri in pair.uris("A", "B"):
                client = stack.enter_context(HAClient([uri], backoff=PATIENT, timeout=WAIT_SECONDS))
                client.connect()
                threading.Thread(target=workshop.work, args=(client,), daemon=True).start()
            wait_until(lambda: len(workshop.seen) == count, lambda: f"{workshop.seen}")
            wait_until(lambda: all(left(one.server) == 0 for one in pair), "the queue is not empty")
        assert workshop.seen == Counter(range(1, count + 1))
