"""A real server is killed at random moments of random work, again and again; nothing may be lost.

After every kill the publishers do what a client with a publish store does: they log on again, and
send everything again that has not been acknowledged. After every restart, `Audit` says what must be
true. See killing.py for how it is killed.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Final

import pytest

from tests.recovery.audit import Audit
from tests.recovery.killing import live_and_die
from tests.recovery.publishers import COMPACT, Follower, Publisher, work
from tests.support.chances import chance_of
from tests.support.server import RunningServer, running_server

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
  <Topic>
    <Name>dated</Name><MessageType>json</MessageType><Key>/id</Key>
    <FileName>dated.sow</FileName><SlabSize>256KB</SlabSize>
    <History><Window>2s</Window><Granularity>10ms</Granularity></History>
  </Topic>
  <Topic>
    <Name>enriched</Name><MessageType>json</MessageType><Key>/id</Key>
    <FileName>enriched.sow</FileName><SlabSize>256KB</SlabSize>
    <Enrichment><Field>/n + 1 AS /next</Field></Enrichment>
  </Topic>
  <Topic>
    <Name>desks</Name><MessageType>json</MessageType><Key>/id</Key><Pattern>^desk/</Pattern>
    <FileName>desks.sow</FileName><SlabSize>256KB</SlabSize>
  </Topic>
</SOW>
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory>
  <JournalSize>10MB</JournalSize>
  <PreallocatedJournalFiles>1</PreallocatedJournalFiles>
  <FlushInterval>{{flush}}</FlushInterval>
  <Topic>
    <Name>^(orders|quotes|notes|shared|dated|enriched|desks)$</Name><MessageType>json</MessageType>
  </Topic>
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


@pytest.mark.long
@pytest.mark.timeout(600)
def test_nothing_acknowledged_is_lost(tmp_path: Path, log_number: int, kills: int) -> None:
    """See above."""
    chance = chance_of(log_number)
    publishers = [Publisher(f"p{n}", random.Random(chance.random())) for n in range(3)]
    publishers.append(Publisher("anonymous", random.Random(chance.random()), numbered=False))
    audit = Audit(publishers, Follower(), chance)

    def work_until_killed(server: RunningServer) -> None:
        work(server, publishers, audit.follower, chance.uniform(0.02, 0.2), kill=True)

    live_and_die(tmp_path, log_number, kills, chance, ELEMENTS, audit.check, work_until_killed)
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
