"""A queue that two instances have between them, while they have all kinds of trouble.

Consumers stay at one instance each, and publishers go to whichever is there. When the trouble is
over, every message has been with a consumer, and nothing is left. Disks are full, too: what is
refused for want of space is published once more. See test_replication_faults.py.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Final

import pytest

from amperage.client import CommandError, HAClient, StoredMessage
from tests.client.shells import PATIENT
from tests.recovery.test_replication_faults import TROUBLES, Trouble, small_disks
from tests.replication.topologies import TOPOLOGIES
from tests.support.chances import chance_of
from tests.support.cluster import Instance, cluster
from tests.support.long_form import spread
from tests.support.raw import QUICK_ACKS
from tests.support.sow import query
from tests.support.waiting import WAIT_SECONDS, wait_until

JOBS: Final = 1_500
PADDINGS: Final = (0, 20_000, 40_000)
"""Bytes of jobs: of long ones it takes few to fill a journal, and then the disk."""

QUEUE: Final = """
<SOW>
  <Queue>
    <Name>jobs</Name><MessageType>json</MessageType>
    <LeasePeriod>2s</LeasePeriod><MaxPerSubscriptionBacklog>20</MaxPerSubscriptionBacklog>
  </Queue>
</SOW>
"""


class Worker:
    """A consumer at one instance, whatever happens to it.

    Attributes:
        done: the jobs that it has dealt with.
    """

    def __init__(self, instance: Instance) -> None:
        self.done: list[int] = []
        self._client = HAClient(
            [instance.uri],
            f"worker-{instance.name}",
            backoff=PATIENT,
            heartbeat=1,
            timeout=WAIT_SECONDS,
        )
        self._client.connect()
        self._stream = self._client.subscribe("jobs", max_backlog=10, auto_ack=True)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Acknowledge what is done, and leave."""
        self._client.flush_acks(timeout=WAIT_SECONDS)
        self._client.close()
        self._thread.join(WAIT_SECONDS)

    def _run(self) -> None:
        for job in self._stream:
            self.done.append(job.json()["n"])


class Publisher:
    """Publishes all jobs, those that are refused for want of space once more.

    Args:
        uris: the instances that it goes to.
        padding: bytes that make jobs longer.

    Attributes:
        refused: how many were refused.
    """

    def __init__(self, uris: list[str], padding: int) -> None:
        self.refused = 0
        self._padding = "x" * padding
        self._again: SimpleQueue[int] = SimpleQueue()
        self._client = HAClient(
            uris,
            "publisher",
            backoff=PATIENT,
            heartbeat=1,
            timeout=WAIT_SECONDS,
            logon_options={"options": QUICK_ACKS},
            on_refused=self._is_refused,
        )

    def publish(self, stop: threading.Event) -> None:
        """Publish all jobs, a few at a time until the trouble is over."""
        self._client.connect()
        for number in range(JOBS):
            self._publish(number)
            if number % 20 == 0 and not stop.is_set():
                time.sleep(0.03)

    def finish(self) -> None:
        """See that all of them are safe, now that there is space."""
        self._client.publish_flush(WAIT_SECONDS)
        while not self._again.empty():
            self._publish(self._again.get())
            self._client.publish_flush(WAIT_SECONDS)
        self._client.close()

    def _publish(self, number: int) -> None:
        self._client.publish("jobs", f'{{"n":{number},"p":"{self._padding}"}}')

    def _is_refused(self, message: StoredMessage, _why: CommandError) -> None:
        self.refused += 1
        self._again.put(json.loads(message.body)["n"])


def is_empty(instance: Instance) -> bool:
    """Whether nothing waits in an instance's queue."""
    with instance.server.log_on("auditor") as peer:
        return not query(peer, "jobs").messages


@pytest.mark.parametrize("name", spread(["pair", "chain"], 1))
@pytest.mark.long
@pytest.mark.timeout(600)
def test_each_job_is_done_and_none_is_left(tmp_path: Path, name: str) -> None:
    """Some more than once: how many is printed."""
    chance, topology = chance_of(name), TOPOLOGIES[name]
    with (
        cluster(tmp_path, topology, elements=QUEUE, preallocated=1) as instances,
        small_disks(instances) as disks,
    ):
        trouble = Trouble(instances, chance, disks)
        for instance in instances:
            trouble.start(instance)
        workers = [Worker(instance) for instance in instances]
        stop = threading.Event()
        publisher = Publisher(instances.uris(*topology.homes[0]), chance.choice(PADDINGS))
        publishing = threading.Thread(target=publisher.publish, args=(stop,), daemon=True)
        publishing.start()
        for _ in range(TROUBLES):
            time.sleep(chance.uniform(0.05, 0.6))
            trouble.strike()
        print("\n".join(trouble.happened))
        trouble.end()
        stop.set()
        publishing.join(WAIT_SECONDS)
        publisher.finish()
        print(f"{publisher.refused} jobs were refused")
        wait_until(
            lambda: len({job for one in workers for job in one.done}) == JOBS,
            lambda: f"done are {[len(set(one.done)) for one in workers]} of {JOBS}",
        )
        for worker in workers:
            worker.close()
        for instance in instances:
            wait_until(partial(is_empty, instance), f"{instance.name} has some left")
        done = Counter(job for one in workers for job in one.done)
        assert set(done) == set(range(JOBS))
        print(f"{sum(done.values()) - JOBS} of {JOBS} jobs were done again")
