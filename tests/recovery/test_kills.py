"""A real server is killed at random moments of random work, again and again; nothing may be lost.

After every kill the publishers do what a client with a publish store does: they log on again, and
send everything again that has not been acknowledged. After every restart, `Audit` says what must be
true. In some runs the power fails as well: then everything is lost that was not on stable storage,
or some of it, or it comes to nothing that anybody wrote.

`pytest tests/recovery --crash-runs 5000` does it for longer; AMPERAGE_SEED repeats a run.
"""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path
from typing import Final

import pytest

from tests.recovery.audit import Audit
from tests.recovery.publishers import COMPACT, Follower, Publisher, work
from tests.recovery.stable_storage import Watch, fail_power
from tests.support.server import ServerEnded, running_server
from tests.support.waiting import WAIT_SECONDS

ELEMENTS: Final = f"""
<SOW>
  <Topic>
    <Name>orders</Name><MessageType>json</MessageType><Key>/id</Key>
    <FileName>orders.sow</FileName><SlabSize>256KB</SlabSize>
  </Topic>
  <Topic>
    <Name>quotes</Name><MessageType>json</MessageType><Key>/id</Key>
    <Durability>transient</Durability>
  </Topic>
  <Topic>
    <Name>notes</Name><MessageType>json</MessageType>
    <FileName>notes.sow</FileName><SlabSize>256KB</SlabSize>
  </Topic>
  <Topic>
    <Name>shared</Name><MessageType>json</MessageType><Key>/id</Key>
    <FileName>shared.sow</FileName><SlabSize>256KB</SlabSize>
  </Topic>
</SOW>
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory>
  <JournalSize>10MB</JournalSize>
  <PreallocatedJournalFiles>1</PreallocatedJournalFiles>
  <FlushInterval>{{flush}}</FlushInterval>
  <Topic><Name>^(orders|quotes|notes|shared)$</Name><MessageType>json</MessageType></Topic>
  <Topic><Name>^events/</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
<Actions>
  <Action>
    <On>
      <Module>amps-action-on-publish-message</Module>
      <Options><Topic>{COMPACT}</Topic><MessageType>json</MessageType></Options>
    </On>
    <Do><Module>amps-action-do-compact-sow</Module></Do>
  </Action>
</Actions>
"""
KILLS_OF_ONE_LOG: Final = 10
"""After so many kills a fresh log is begun: every audit reads all of it."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """As many logs as it takes, every other one with power failures."""
    runs = int(metafunc.config.getoption("--crash-runs"))
    logs = -(-runs // KILLS_OF_ONE_LOG)
    metafunc.parametrize("log", range(logs))


@pytest.mark.timeout(600)
def test_nothing_acknowledged_is_lost(tmp_path: Path, log: int) -> None:
    """See above."""
    seed = int(os.environ.get("AMPERAGE_SEED", "0")) or random.randrange(1 << 32)
    print(f"AMPERAGE_SEED={seed}")
    chance = random.Random(f"{seed}-{log}")
    publishers = [Publisher(f"p{n}", random.Random(chance.random())) for n in range(3)]
    publishers.append(Publisher("anonymous", random.Random(chance.random()), numbered=False))
    audit = Audit(publishers, Follower(), chance)
    shadows = tmp_path / "shadows"
    shadows.mkdir()
    power_fails = log % 2 == 1
    for _ in range(KILLS_OF_ONE_LOG):
        run_and_kill(tmp_path, audit, shadows if power_fails else None)
        if power_fails and chance.random() < 0.7:
            fail_power(tmp_path, shadows, chance)
    with running_server(tmp_path, elements=ELEMENTS.format(flush="2ms")) as server:
        audit.check(server)
        work(server, publishers, audit.follower, 0.1, kill=False)
        audit.check(server)
        audit.follower.catch_up(server, len(audit.known))
        assert server.stop() == 0
    with running_server(tmp_path, elements=ELEMENTS.format(flush="2ms")) as server:
        audit.check(server)
    assert all(one.acknowledged == len(one.commands) for one in publishers)
    assert len(audit.follower.seen) == len(audit.known)


def run_and_kill(directory: Path, audit: Audit, shadows: Path | None) -> None:
    """Start a server, audit it, let it work; it is killed, or dies in a call, which may be early.

    Args:
        directory: where it runs.
        audit: compares, and knows who works.
        shadows: see `Watch`.
    """
    chance = audit.chance
    calls = chance.randrange(300) if chance.random() < 0.5 else None
    elements = ELEMENTS.format(flush=chance.choice(("10us", "2ms")))
    try:
        with running_server(directory, elements=elements, prepare=Watch(shadows, calls)) as server:
            try:
                audit.check(server)
            except (OSError, EOFError):
                if calls is None or server.process.wait(WAIT_SECONDS) != -signal.SIGKILL:
                    raise
            else:
                seconds = chance.uniform(0.02, 0.2)
                work(server, audit.publishers, audit.follower, seconds, kill=True)
    except ServerEnded as ended:
        if calls is None or ended.code != -signal.SIGKILL:
            raise
