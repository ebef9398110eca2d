"""VALUE_LOOKUP: a field of a record of another topic, while a message is published."""

from __future__ import annotations

import json
import signal
from pathlib import Path

from tests.support.raw import RawPeer
from tests.support.server import RunningServer, module_server, running_server
from tests.support.sow import query

LOOKUPS = """
<Modules>
  <Module>
    <Name>experimental-udf</Name>
    <Library>libamps_udf_experimental.so</Library>
    <Options>
      <Lookup>name-of;1;json;customers;/name;/id</Lookup>
      <Lookup>price-of; 2; json; prices; /px/last; /sym; /venue</Lookup>
      <Lookup>region-of;1;nvfix;desks;/region;/desk</Lookup>
      <Lookup>copied;1;json;copies;/name;/id</Lookup>
    </Options>
  </Module>
</Modules>
<SOW>
  <Topic><Name>customers</Name><MessageType>json</MessageType><Key>/id</Key>
    <FileName>customers.sow</FileName></Topic>
  <Topic><Name>prices</Name><MessageType>json</MessageType><Key>/n</Key>
    <Durability>transient</Durability></Topic>
  <Topic><Name>desks</Name><MessageType>nvfix</MessageType><Key>/desk</Key>
    <Durability>transient</Durability></Topic>
  <ConflatedTopic><Name>copies</Name><MessageType>json</MessageType>
    <UnderlyingTopic>customers</UnderlyingTopic><Interval>100ms</Interval></ConflatedTopic>
  <Topic>
    <Name>orders</Name><MessageType>json</MessageType><Key>/key</Key>
    <FileName>orders.sow</FileName>
    <Preprocessing>
      <Field>CONCAT(VALUE_LOOKUP("name-of", /customer), "-", /id) AS /key</Field>
    </Preprocessing>
    <Enrichment>
      <Field>VALUE_LOOKUP('name-of', /customer) AS /name</Field>
      <Field>VALUE_LOOKUP('price-of', /sym, /venue) + 1 AS /px</Field>
      <Field>VALUE_LOOKUP('region-of', /desk) AS /region HINT OPTIONAL</Field>
      <Field>VALUE_LOOKUP(/which, /customer) AS /chosen HINT OPTIONAL</Field>
      <Field>VALUE_LOOKUP('copied', /customer) AS /copied HINT OPTIONAL</Field>
    </Enrichment>
  </Topic>
</SOW>
"""


server = module_server(LOOKUPS)


def stored(peer: RawPeer, **order: object) -> dict[str, object]:
    """What an order is stored as."""
    peer.publish("orders", json.dumps(order).encode())
    (body,) = query(peer, "orders", f=f"/id = {json.dumps(order['id'])}").bodies
    found: dict[str, object] = json.loads(body)
    return found


def test_fields_come_from_records_of_other_topics(server: RunningServer) -> None:
    with server.log_on() as peer, server.log_on(message_type="nvfix") as desks:
        desks.publish("desks", b"desk=D1\x01region=EMEA\x01")
        desks.ask({"c": "flush", "cid": "f", "a": "completed"})
        peer.publish("customers", b'{"id":7,"name":"Ada"}')
        peer.publish("prices", b'{"n":1,"sym":"A","venue":"X","px":{"last":10.5}}')
        peer.publish("prices", b'{"n":2,"sym":"A","venue":"Y","px":{"last":20}}')
        made = stored(peer, id=1, customer=7, sym="A", venue="Y", desk="D1")
        assert made["name"] == "Ada"
        assert made["px"] == 21
        assert made["region"] == "EMEA"
        assert made["key"] == "Ada-1"


def test_what_is_not_there_is_null(server: RunningServer) -> None:
    with server.log_on() as peer:
        peer.publish("customers", b'{"id":"","name":"Nobody"}')
        for number, customer in enumerate(("unknown", "", None, "7.0", 7.5), 100):
            made = stored(peer, id=number, customer=customer)
            assert made["name"] is None
            assert "region" not in made


def test_the_value_is_a_text_that_counts_as_a_number(server: RunningServer) -> None:
    with server.log_on() as peer:
        peer.publish("customers", b'{"id":"n","name":42}')
        peer.publish("customers", b'{"id":"b","name":true}')
        assert stored(peer, id=200, customer="n")["name"] == "42"
        assert stored(peer, id=201, customer="b")["name"] == "1"


def test_lookups_follow_the_topic(server: RunningServer) -> None:
    """An update, a deletion, and a record that moves to another value are seen at once."""
    with server.log_on() as peer:
        peer.publish("customers", b'{"id":"c","name":"Old"}')
        assert stored(peer, id=300, customer="c")["name"] == "Old"
        peer.publish("customers", b'{"id":"c","name":"New"}')
        assert stored(peer, id=301, customer="c")["name"] == "New"
        peer.ask({"c": "sow_delete", "cid": "d", "t": "customers", "f": "/id='c'", "a": "stats"})
        assert stored(peer, id=302, customer="c")["key"] == "-302"


def test_records_are_found_as_the_messages_before_leave_them(server: RunningServer) -> None:
    """Also if messages to both topics come together."""
    with server.log_on() as peer:
        with peer.at_once():
            for n in range(40):
                peer.publish("customers", b'{"id":"turns","name":"n%d"}' % n)
                peer.publish("orders", b'{"id":"o%d","customer":"turns"}' % n)
        found = [json.loads(body) for body in query(peer, "orders", f="/customer = 'turns'").bodies]
        assert {one["id"]: one["name"] for one in found} == {f"o{n}": f"n{n}" for n in range(40)}


def test_one_of_several_records_that_match_is_used(server: RunningServer) -> None:
    with server.log_on() as peer:
        for number in (10, 11):
            body = {"n": number, "sym": "TWO", "venue": "Z", "px": {"last": number}}
            peer.publish("prices", json.dumps(body).encode())
        assert stored(peer, id=400, sym="TWO", venue="Z")["px"] in (11, 12)


def test_the_name_of_the_lookup_may_be_computed(server: RunningServer) -> None:
    with server.log_on() as peer:
        peer.publish("customers", b'{"id":"w","name":"Wil"}')
        assert stored(peer, id=500, customer="w", which="name-of")["chosen"] == "Wil"
        assert "chosen" not in stored(peer, id=501, customer="w", which="nonsense")
        assert "chosen" not in stored(peer, id=502, customer="w", which="price-of")


def test_a_conflated_topic_can_be_looked_up(server: RunningServer) -> None:
    with server.log_on() as peer:
        peer.subscribe("copies", "s", f="/id = 'k'")
        peer.publish("customers", b'{"id":"k","name":"Kim"}')
        assert peer.receive()[1] == b'{"id":"k","name":"Kim"}'
        peer.send({"c": "unsubscribe", "cid": "u", "sub_id": "s"})
        assert stored(peer, id=600, customer="k")["copied"] == "Kim"


def test_records_of_a_file_are_found_after_a_restart(tmp_path: Path) -> None:
    with running_server(tmp_path, elements=LOOKUPS) as server, server.log_on() as peer:
        peer.publish("customers", b'{"id":7,"name":"Ada"}')
        stored(peer, id=1, customer=7)
        server.stop(signal.SIGKILL)
    with running_server(tmp_path, elements=LOOKUPS) as server, server.log_on() as peer:
        assert stored(peer, id=2, customer=7)["name"] == "Ada"
