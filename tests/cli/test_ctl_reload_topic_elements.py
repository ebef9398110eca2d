"""`amps-ctl reload`: topics with a Pattern come and go, and elements of a topic change."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.admin.support import Admin, running_admin
from tests.cli.reload_support import configuration, edit, refused, reloaded
from tests.cli.topic_elements import conflated, records, topic
from tests.support.server import running_configuration
from tests.support.sow import query
from tests.support.waiting import wait_until

LOG: Final = """
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>in.*</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""
SHORT: Final = "<Durability>transient</Durability><Expiration>{}</Expiration>"


@pytest.fixture
def admin(tmp_path: Path) -> Iterator[Admin]:
    elements = f"{LOG}<SOW>{topic('orders')}{topic('short', SHORT.format('1h'))}</SOW>"
    with running_admin(tmp_path, elements=elements) as running:
        yield running


@pytest.mark.parametrize("name", ["in", "kept"])
@pytest.mark.parametrize("kind", ["file", "memory"])
def test_a_topic_with_a_pattern_comes_and_goes(
    admin: Admin, tmp_path: Path, name: str, kind: str
) -> None:
    """Topics that it selects and that are in use have records from then on, or no more."""
    storage = "<FileName>all.sow</FileName>" if kind == "file" else SHORT.format("1h")
    container = topic(name, f"<Pattern>^{name}-</Pattern>{storage}")
    one, other = f"{name}-1", f"{name}-2"
    with admin.server.log_on("peer") as peer, admin.server.log_on("subscriber") as subscriber:
        subscriber.subscribe(one, "by name")
        subscriber.subscribe(f"^{name}-", "by expression")
        peer.publish(one, b'{"id":1}')
        peer.flush()
        assert {subscriber.receive()[0]["sids"] for _ in range(1)}
        edit(admin, "</SOW>", f"{container}</SOW>")
        reloaded(admin)
        recorded = [b'{"id":1}'] if name == "in" else []
        assert records(peer, one) == recorded
        for number in (2, 3):
            peer.publish(one, b'{"id":%d}' % number)
            peer.publish(other, b'{"id":%d}' % number)
        peer.flush()
        assert records(peer, one) == [*recorded, b'{"id":2}', b'{"id":3}']
        assert records(peer, other) == [b'{"id":2}', b'{"id":3}']
        assert len(query(peer, f"^{name}-").messages) == 4 + len(recorded)
        heard = [subscriber.receive() for _ in range(4)]
        assert [body for _, body in heard] == [b'{"id":2}', b'{"id":2}', b'{"id":3}', b'{"id":3}']
        edit(admin, container, "")
        reloaded(admin)
        assert records(peer, one) is None
        peer.publish(one, b'{"id":4}')
        assert subscriber.receive()[1] == b'{"id":4}'
        if kind == "memory":
            edit(admin, "</SOW>", f"{container}</SOW>")
            reloaded(admin)
            before = records(peer, one)
            admin.server.stop(signal.SIGKILL)
            text = configuration(admin.server).read_text()
            with (
                running_configuration(tmp_path, text, admin.server.port) as again,
                again.log_on("afterwards") as afterwards,
            ):
                assert records(afterwards, one) == before
    assert "01-0004" not in admin.server.log()


@pytest.mark.parametrize(
    ("elements", "reason"),
    [
        (topic("all", "<Pattern>^ord</Pattern><FileName>a.sow</FileName>"), "topic orders, which"),
        (
            topic("all", "<Pattern>^a-</Pattern><FileName>a.sow</FileName>")
            + topic("both", "<Pattern>^b-</Pattern><FileName>b.sow</FileName>"),
            "may have records of the same names",
        ),
        (
            topic("all", "<Pattern>^a-</Pattern><FileName>a.sow</FileName>")
            + conflated("copies", "all", "<TopicFormat>copy-%n</TopicFormat>"),
            "copies of the topics of a Pattern may be in use",
        ),
    ],
)
def test_a_pattern_is_refused_beside_topics_of_the_same_names(
    admin: Admin, elements: str, reason: str
) -> None:
    edit(admin, "</SOW>", f"{elements}</SOW>")
    assert reason in refused(admin)


def test_another_lifetime_is_for_new_records(admin: Admin) -> None:
    with admin.server.log_on("peer") as peer:
        peer.publish("short", b'{"id":1}')
        peer.flush()
        edit(admin, SHORT.format("1h"), SHORT.format("100ms"))
        assert reloaded(admin)[0].startswith("SOW/Topic short (json): Expiration: 1h -> 100ms")
        peer.publish("short", b'{"id":2}')
        peer.flush()
        wait_until(lambda: records(peer, "short") == [b'{"id":1}'], admin.server.log)
        edit(admin, SHORT.format("100ms"), SHORT.format("disabled"))
        assert "its records are indexed by their ends from a start on" in refused(admin)
        edit(admin, SHORT.format("disabled"), SHORT.format("100ms"))
        edit(admin, "<Name>short</Name>", "<Name>short</Name><SlabSize>1MB</SlabSize>")
        reloaded(admin)
        edit(admin, "<SlabSize>1MB</SlabSize>", "<HashIndex><Key>/v</Key></HashIndex>")
        assert "HashIndex" in refused(admin)
