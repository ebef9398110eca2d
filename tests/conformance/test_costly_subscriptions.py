"""What one client subscribes to costs nobody else more than time, whatever it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.raw import RawPeer
from tests.support.server import RunningServer, ServerEnded, running_server

JOURNALED = """
<SOW>
  <Topic>
    <Name>records</Name><MessageType>json</MessageType><Key>/id</Key>
    <Durability>transient</Durability>
  </Topic>
  <Topic>
    <Name>logged</Name><MessageType>json</MessageType><Key>/id</Key>
    <Durability>transient</Durability>
  </Topic>
</SOW>
<TransactionLog>
  <JournalDirectory>./journal</JournalDirectory>
  <PreallocatedJournalFiles>1</PreallocatedJournalFiles>
  <MinJournalSize>10MB</MinJournalSize>
  <Topic><Name>^log</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""

COSTLY = ["^([\\w.]+)+[!#]$", "(.*)*[!#]$"]
LIMITED = ["(*LIMIT_MATCH=0).*", "(*UTF)(*LIMIT_DEPTH=0)(a|.)+", "(*LIMIT_HEAP=0)(a|.)+"]
NAME = "orders.europe.london.equities.large.and.small.caps"


@pytest.mark.parametrize("pattern", LIMITED)
def test_a_pattern_may_not_limit_its_searches(server: RunningServer, pattern: str) -> None:
    """Such a subscription is refused with what is wrong."""
    with server.log_on() as peer:
        ack = peer.subscribe(pattern, "1")
        assert (ack["status"], ack["reason"]) == ("failure", "bad regex topic")
        query = {"c": "sow", "cid": "2", "t": pattern, "a": "processed"}
        assert peer.ask(query)["reason"] == "bad regex topic"
        filtered = peer.subscribe("any", "3", filter=f"/a LIKE '{pattern}'")
        assert filtered["reason"] == "bad filter"


def test_a_pattern_too_long_for_machine_code_matches_all_the_same(server: RunningServer) -> None:
    """As a topic and in a filter; PCRE2 interprets it."""
    pattern = f"^{'x*' * 10_000}orders$"
    with server.log_on() as peer:
        assert peer.subscribe(pattern, "1")["status"] == "success"
        like = f"/a LIKE '{pattern}'"
        assert peer.subscribe("any", "2", filter=like)["status"] == "success"
        peer.publish("xxorders", b"1")
        assert peer.receive()[1] == b"1"
        peer.publish("any", b'{"a":"xorders"}')
        assert peer.receive()[1] == b'{"a":"xorders"}'


def publishes(peer: RawPeer, topic: str) -> None:
    """Publish a message, and see to it that the connection lives on."""
    peer.publish(topic, b'{"id":1}')
    peer.flush()


@pytest.mark.parametrize("pattern", COSTLY)
def test_a_pattern_that_takes_too_long_does_not_match(tmp_path: Path, pattern: str) -> None:
    """Whoever is the first to use a topic goes on, all others get what they subscribed to."""
    with running_server(tmp_path, elements=JOURNALED) as server:
        with server.log_on("costly") as costly, server.log_on("later") as later:
            assert costly.subscribe(pattern, "evil")["status"] == "success"
            assert later.subscribe("^(orders|log|records)", "all")["status"] == "success"
            topics = [NAME, f"log.{NAME}", "records", "logged", f"{NAME}.again"]
            for topic in topics:
                with server.log_on("publisher") as publisher:
                    publishes(publisher, topic)
            assert [later.receive()[0]["t"] for _ in topics] == topics
            with server.log_on("another") as another:
                assert another.subscribe(f"{NAME}.new", "1")["status"] == "success"
                found = another.ask({"c": "sow", "cid": "2", "t": "records", "a": "processed"})
                assert found["c"] == "group_begin" or found["status"] == "success"
            costly.flush()
        assert server.logs("client[costly] subscription id 'evil'")
        assert server.logs(f"does not include topic '{NAME}': ")
        assert "01-0004" not in server.log()


def test_a_replay_passes_over_topics_that_take_too_long(tmp_path: Path) -> None:
    """A bookmark subscription with such a pattern gets nothing of them, others get all."""
    with running_server(tmp_path, elements=JOURNALED) as server, server.log_on("costly") as costly:
        assert costly.subscribe(COSTLY[0], "evil", bm="0")["status"] == "success"
        with server.log_on("other") as other:
            assert other.subscribe("^log", "all", bm="0")["status"] == "success"
            publishes(costly, f"log.{NAME}")
            assert other.receive()[0]["t"] == f"log.{NAME}"
        assert "01-0004" not in server.log()


FRAGILE = '''
from server.message_types.registry import MessageTypes


class Fragile:
    """JSON that cannot be cut down to a field named trouble."""

    def __init__(self, name):
        self._json = MessageTypes().get("json")
        self.name = name

    def __getattr__(self, member):
        return getattr(self._json, member)

    def build(self, fields):
        if any(value is not None for _, value in fields):
            raise RuntimeError("another defect")
        return self._json.build(fields)

    def select(self, body, selection):
        if b"trouble" in body:
            raise RuntimeError("a defect of this library")
        return self._json.select(body, selection)


def create_message_type(name, options):
    return Fragile(name)
'''

OWN_TYPE = """
<Modules><Module><Name>fragile-module</Name><Library>./fragile.py</Library></Module></Modules>
<MessageTypes>
  <MessageType><Name>fragile</Name><Module>fragile-module</Module></MessageType>
</MessageTypes>
<SOW>
  <Topic>
    <Name>records</Name><MessageType>fragile</MessageType><Key>/id</Key>
    <Durability>transient</Durability>
  </Topic>
  <Topic>
    <Name>viewed</Name><MessageType>fragile</MessageType><Key>/id</Key>
    <Durability>transient</Durability>
  </Topic>
  <View>
    <Name>broken-view</Name><MessageType>fragile</MessageType>
    <UnderlyingTopic>viewed</UnderlyingTopic>
    <Projection><Field>/id</Field></Projection><Grouping><Field>/id</Field></Grouping>
  </View>
  <View>
    <Name>good-view</Name><MessageType>json</MessageType>
    <UnderlyingTopic>[fragile].[viewed]</UnderlyingTopic>
    <Projection><Field>[fragile].[viewed]./id AS /id</Field></Projection>
    <Grouping><Field>[fragile].[viewed]./id</Field></Grouping>
  </View>
</SOW>
"""


@pytest.mark.parametrize("topic", ["records", "passing"])
def test_what_fails_for_one_subscription_ends_that_one_alone(tmp_path: Path, topic: str) -> None:
    """Its client is told; the publisher, and whoever is subscribed as well, notice nothing."""
    (tmp_path / "fragile.py").write_text(FRAGILE)
    with (
        running_server(tmp_path, elements=OWN_TYPE) as server,
        server.log_on("first", "fragile") as first,
        server.log_on("second", "fragile") as second,
        server.log_on("publisher", "fragile") as publisher,
    ):
        cut = first.subscribe(topic, "cut", o="select=[-/,+/a]")
        assert cut["status"] == "success"
        assert first.subscribe(topic, "whole")["status"] == "success"
        assert second.subscribe(topic, "all")["status"] == "success"
        bodies = [b'{"id":1,"a":1}', b'{"id":2,"trouble":1}', b'{"id":3}']
        for body in bodies:
            publisher.publish(topic, body)
            publisher.flush()
        assert [second.receive()[1] for _ in bodies] == bodies
        heard = [first.receive() for _ in range(5)]
        told = [header for header, _ in heard if header["c"] == "ack"]
        assert [(one["sub_id"], one["status"], one["reason"]) for one in told] == [
            ("cut", "failure", "subscription ended")
        ]
        assert [body for header, body in heard if header.get("sids") == "whole"] == bodies
        assert [body for header, body in heard if header.get("sids") == "cut"] == [b'{"a":1}']
        assert server.logs("14-0004")


def test_events_that_cannot_be_made_cost_those_who_listen(tmp_path: Path) -> None:
    """Whoever does what the event is about notices nothing."""
    (tmp_path / "fragile.py").write_text(FRAGILE)
    with (
        running_server(tmp_path, elements=OWN_TYPE) as server,
        server.log_on("listener", "fragile") as listener,
    ):
        listener.send({"c": "subscribe", "sub_id": "1", "t": "/AMPS/ClientStatus"})
        with server.log_on("other") as other:
            assert other.subscribe("any", "1")["status"] == "success"
        told = listener.receive_header()
        assert (told["sub_id"], told["reason"]) == ("1", "subscription ended")


USELESS = FRAGILE.replace("if any(value is not None for _, value in fields):", "if True:")


def test_a_type_that_makes_no_message_of_a_view_ends_the_start(tmp_path: Path) -> None:
    """With a sentence about the view, however the library fails."""
    (tmp_path / "fragile.py").write_text(USELESS)
    with pytest.raises(ServerEnded) as ended, running_server(tmp_path, elements=OWN_TYPE):
        pass
    said = str(ended.value)
    assert "view broken-view: message type fragile fails to make a message with these" in said
    assert "RuntimeError: another defect" in said
    assert "Traceback" not in said


def test_a_type_that_makes_no_message_is_refused_to_who_aggregates(tmp_path: Path) -> None:
    """The client is told why, and stays connected."""
    (tmp_path / "fragile.py").write_text(USELESS)
    own_type = re.sub("<View>.*</View>", "", OWN_TYPE, flags=re.DOTALL)
    with (
        running_server(tmp_path, elements=own_type) as server,
        server.log_on("reader", "fragile") as reader,
    ):
        options = "projection=[SUM(/n) AS /n],grouping=[/id]"
        query = {"c": "sow", "cid": "1", "t": "records", "o": options, "a": "processed"}
        refusal = reader.ask(query)
        assert (refusal["status"], refusal["reason"]) == ("failure", "invalid option")
        reader.flush()


def test_a_view_that_cannot_be_made_costs_no_publisher(tmp_path: Path) -> None:
    """The log says so, and another view of the same topic follows it."""
    (tmp_path / "fragile.py").write_text(FRAGILE)
    with (
        running_server(tmp_path, elements=OWN_TYPE) as server,
        server.log_on("reader") as reader,
        server.log_on("publisher", "fragile") as publisher,
    ):
        assert reader.subscribe("good-view", "1")["status"] == "success"
        for number in (1, 2):
            publisher.publish("viewed", b'{"id":%d}' % number)
            publisher.flush()
            assert reader.receive()[1] == b'{"id":%d}' % number
        assert server.logs("could not follow a change of topic 'viewed'")
