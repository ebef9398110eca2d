"""A queue that two instances have between them, while they have all kinds of trouble.

Consumers stay at one instance each, and publishers go to whichever is there. When the trouble is
over, every message has been with a consumer, and nothing is left. See test_replication_faults.py.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from client import HAClient
from tests.client.shells import PATIENT
from tests.recovery.killing import chance_of
from tests.recovery.test_replication_faults import TROUBLES, Trouble
from tests.replication.topologies import TOPOLOGIES
from tests.support.cluster import Instance, cluster
from tests.support.raw import QUICK_ACKS
from tests.support.sow import query
from tests.support.waiting import WAIT_SECONDS, wait_until

JOBS: Final = 1_500
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


def publish(client: HAClient, stop: threading.Event) -> None:
    """Publish all jobs, a few at a time until the trouble is over."""
    for number in range(JOBS):
        client.publish("jobs", f'{{"n":{number}}}')
        if number % 20 == 0 and not stop.is_set():
            time.sleep(0.03)


def is_empty(instance: Instance) -> bool:
    """Whether nothing waits in an instance's queue."""
    with instance.server.log_on("auditor") as peer:
        return not query(peer, "jobs").messages


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """As many runs as are asked for."""
    metafunc.parametrize("number", range(int(metafunc.config.getoption("--fault-runs"))))


@pytest.mark.parametrize("name", ["pair", "chain"])
@pytest.mark.timeout(600)
def test_each_job_is_done_and_none_is_left(tmp_path: Path, name: str, number: int) -> None:
    """Some more than once: how many is printed."""
    chance, topology = chance_of(number), TOPOLOGIES[name]
    with cluster(tmp_path, topology, elements=QUEUE) as instances:
        trouble = Trouble(instances, chance)
        for instance in instances:
            trouble.start(instance)
        workers = [Worker(instance) for instance in instances]
        stop = threading.Event()
        uris = instances.uris(*topology.homes[0])
        new = partial(HAClient, backoff=PATIENT, heartbeat=1, timeout=WAIT_SECONDS)
        with new(uris, "publisher", logon_options={"options": QUICK_ACKS}) as publisher:
            publisher.connect()
            publishing = threading.Thread(target=publish, args=(publisher, stop), daemon=True)
            publishing.start()
            for _ in range(TROUBLES):
                time.sleep(chance.uniform(0.05, 0.6))
                trouble.strike()
            print("\n".join(trouble.happened))
            trouble.end()
            stop.set()
            publishing.join(WAIT_SECONDS)
            publisher.publish_flush(WAIT_SECONDS)
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
