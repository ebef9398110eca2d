"""Two servers that were parted show different records: they say so, and an action repairs it.

Source: docs/replication.md. AMPS has nothing of the kind.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.replication.topologies import Topology, both
from tests.support.cluster import ORDERS, Cluster, cluster
from tests.support.sow import query
from tests.support.waiting import wait_until

ASYNC: Final = Topology(
    "async pair", both(("A", "B"), is_sync=False), (("A", "B"),), {"A": "pair", "B": "pair"}
)
_ACTION: Final = """
  <Action>
    <On><Module>amps-action-on-signal</Module><Options><Signal>{signal}</Signal></Options></On>
    <Do>
      <Module>amps-action-do-compare-replication</Module>
      <Options><Topic>orders</Topic><Repair>{repair}</Repair></Options>
    </Do>
  </Action>
"""
_ACTIONS: Final = (
    _ACTION.format(signal="SIGUSR1", repair="false")
    + _ACTION.format(signal="SIGUSR2", repair="true")
    + """
  <Action>
    <On><Module>amps-action-on-signal</Module><Options><Signal>SIGALRM</Signal></Options></On>
    <Do><Module>amps-action-do-minidump</Module></Do>
  </Action>"""
)
ELEMENTS: Final = f"""{ORDERS}
<MiniDumpDirectory>dumps</MiniDumpDirectory>
<Actions>{_ACTIONS}</Actions>
"""


@pytest.fixture
def parted(tmp_path: Path) -> Iterator[Cluster]:
    """A pair of which each has been published to while they could not hear each other."""
    with cluster(tmp_path, ASYNC, elements=ELEMENTS) as pair:
        pair.start()
        publish(pair, "A", range(100), "first")
        wait_until(lambda: len(records(pair, "B")) == 100, pair.logs)
        pair.network.part("A", "B")
        publish(pair, "A", range(10), "at A")
        publish(pair, "B", range(5, 15), "at B")
        pair.network.heal()
        wait_until(lambda: differing(pair) == set(range(5, 10)), pair.logs)
        yield pair


def publish(pair: Cluster, name: str, numbers: range, text: str) -> None:
    with pair[name].server.log_on(f"publisher {text}") as peer:
        for number in numbers:
            peer.publish("orders", f'{{"id":{number},"text":"{text}"}}'.encode())
        peer.flush()


def records(pair: Cluster, name: str) -> dict[int, str]:
    with pair[name].server.log_on("asker") as peer:
        return {record["id"]: record["text"] for record in query(peer, "orders").messages}


def differing(pair: Cluster) -> set[int]:
    ours, theirs = records(pair, "A"), records(pair, "B")
    return {key for key in ours.keys() | theirs if ours.get(key) != theirs.get(key)}


def test_servers_say_what_differs_and_an_action_repairs_it(parted: Cluster) -> None:
    a, b = parted["A"].server, parted["B"].server
    a.process.send_signal(signal.SIGUSR1)
    for server in (a, b):
        assert server.logs("5 keys differ"), parted.logs()
    b.process.send_signal(signal.SIGUSR2)
    wait_until(lambda: not differing(parted), parted.logs)
    for number, text in records(parted, "A").items():
        assert text == ("first" if number >= 15 else text)
    a.process.send_signal(signal.SIGUSR1)
    for server in (a, b):
        assert server.logs("match those of"), parted.logs()


def test_a_minidump_says_what_differs_and_what_waits(parted: Cluster) -> None:
    a = parted["A"].server
    a.process.send_signal(signal.SIGUSR1)
    assert a.logs("5 keys differ"), parted.logs()
    parted["B"].freeze()
    publish(parted, "A", range(20), "more")
    a.process.send_signal(signal.SIGALRM)
    dumps = parted["A"].directory / "dumps"
    wait_until(lambda: any("collector tracks" in one.read_text() for one in dumps.glob("*.txt")))
    (dump,) = dumps.glob("*.txt")
    lines = [line.split("  ") for line in dump.read_text().splitlines()]
    counts = {words[1].strip(): words[-1].strip() for words in lines if len(words) > 2}
    assert counts["keys of orders that differ from B"] == "5"
    assert int(counts["entries that wait for B"]) >= 20


def test_with_nobody_to_compare_with_the_action_fails(tmp_path: Path) -> None:
    with cluster(tmp_path, ASYNC, elements=ELEMENTS) as pair:
        server = pair["A"].start()
        server.process.send_signal(signal.SIGUSR1)
        assert server.logs("no connected instance replicates the topic orders"), pair.logs()
        assert server.logs("29-0101")
