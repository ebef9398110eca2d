"""More action examples of the AMPS User Guide, on a running server; times are shortened."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator

import pytest

from tests.support.raw import RawPeer
from tests.support.server import RunningServer, running_server

ELEMENTS = """
<SOW>
  <Topic>
    <Name>SOW_TOPIC</Name><MessageType>xml</MessageType><Key>/Trans/Id</Key>
    <Durability>transient</Durability>
  </Topic>
  <Topic>
    <Name>interesting</Name><MessageType>json</MessageType><Key>/id</Key>
    <Durability>transient</Durability><Expiration>enabled</Expiration>
  </Topic>
  <Topic>
    <Name>trades</Name><MessageType>json</MessageType><Key>/id</Key>
    <Durability>transient</Durability>
  </Topic>
  <View>
    <Name>symbols</Name><MessageType>json</MessageType>
    <UnderlyingTopic>trades</UnderlyingTopic>
    <Projection><Field>/symbol</Field></Projection>
    <Grouping><Field>/symbol</Field></Grouping>
  </View>
  <Topic>
    <Name>symbol_processor_assignments</Name><MessageType>json</MessageType><Key>/symbol</Key>
    <Durability>transient</Durability>
  </Topic>
</SOW>
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory>
  <JournalArchiveDirectory>archive</JournalArchiveDirectory>
  <JournalSize>10MB</JournalSize>
  <FlushInterval>1ms</FlushInterval>
  <Topic><Name>orders</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
<Authentication><Module>amps-default-no-authentication-module</Module></Authentication>
<Actions>
  <Action>
    <On>
      <Module>amps-action-on-schedule</Module>
      <Options><Every>500ms</Every><Name>Saturday Night Fever</Name></Options>
    </On>
    <Do>
      <Module>amps-action-do-archive-journal</Module>
      <Options><Age>7d</Age></Options>
    </Do>
  </Action>
  <Action>
    <On>
      <Module>amps-action-on-sow-expire-message</Module>
      <Options><Topic>interesting</Topic><MessageType>json</MessageType></Options>
    </On>
    <On>
      <Module>amps-action-on-sow-expire-message</Module>
      <Options><Topic>trades</Topic><MessageType>json</MessageType></Options>
    </On>
    <Do>
      <Module>amps-action-do-publish-message</Module>
      <Options>
        <Topic>dead-letter</Topic>
        <MessageType>json</MessageType>
        <Data>{"topic":"{{AMPS_TOPIC}}","message":{{AMPS_DATA}} }</Data>
      </Options>
    </Do>
  </Action>
  <Action>
    <On>
      <Module>amps-action-on-signal</Module>
      <Options><Signal>SIGHUP</Signal></Options>
    </On>
    <Do>
      <Module>amps-action-do-query-sow</Module>
      <Options>
        <MessageType>xml</MessageType>
        <Topic>SOW_TOPIC</Topic>
        <Filter>/Trans/Order/@Oname = 'PURCHASE'</Filter>
        <CaptureData>AMPS_DATA</CaptureData>
      </Options>
    </Do>
    <Do>
      <Module>amps-action-do-extract-values</Module>
      <Options>
        <MessageType>xml</MessageType>
        <Data>{{AMPS_DATA}}</Data>
        <Value>SAVED_VARIABLE=/Trans/Value</Value>
      </Options>
    </Do>
    <Do>
      <Module>amps-action-do-echo-message</Module>
      <Options><Message>{{SAVED_VARIABLE}} was in the message</Message></Options>
    </Do>
    <If>
      <Module>amps-action-if-file-system-usage</Module>
      <Options><GreaterThan>0%</GreaterThan><Path>.</Path></Options>
    </If>
    <Do>
      <Module>amps-action-do-echo-message</Module>
      <Options><Message>ALERT: You're getting low on space!</Message></Options>
    </Do>
    <If>
      <Module>amps-action-if-file-system-usage</Module>
      <Options><GreaterThan>100%</GreaterThan><Path>.</Path></Options>
    </If>
    <Do>
      <Module>amps-action-do-shutdown</Module>
    </Do>
  </Action>
  <Action>
    <On>
      <Module>amps-action-on-signal</Module><Options><Signal>SIGUSR1</Signal></Options>
    </On>
    <Do><Module>amps-action-do-disable-authentication</Module></Do>
    <Do><Module>amps-action-do-disable-entitlement</Module></Do>
  </Action>
  <Action>
    <On>
      <Module>amps-action-on-signal</Module><Options><Signal>SIGUSR2</Signal></Options>
    </On>
    <Do><Module>amps-action-do-enable-authentication</Module></Do>
    <Do><Module>amps-action-do-enable-entitlement</Module></Do>
  </Action>
  <Action>
    <On>
      <Module>amps-action-on-message-affinity</Module>
      <Options>
        <MessageType>json</MessageType>
        <DataTopic>symbols</DataTopic>
        <ControlTopic>symbol_processor_assignments</ControlTopic>
      </Options>
    </On>
    <Do>
      <Module>amps-action-do-extract-values</Module>
      <Options>
        <Data>{{AMPS_DATA}}</Data>
        <MessageType>json</MessageType>
        <Value>SYMBOL=/symbol</Value>
      </Options>
    </Do>
    <Do>
      <Module>amps-action-do-publish-message</Module>
      <Options>
        <MessageType>json</MessageType>
        <Topic>symbol_processor_assignments</Topic>
        <Data>{"client_name":"{{AMPS_CLIENT_NAME}}",
               "symbol":"{{SYMBOL}}",
               "event":"{{AMPS_AFFINITY_ACTION}}",
               "reason":"{{AMPS_AFFINITY_REASON}}"}</Data>
      </Options>
    </Do>
    <If>
      <Module>amps-action-if-condition</Module>
      <Options><Condition>"{{AMPS_AFFINITY_ACTION}}" == "unassign"</Condition></Options>
    </If>
    <Do>
      <Module>amps-action-do-delete-sow</Module>
      <Options>
        <Topic>symbol_processor_assignments</Topic>
        <MessageType>json</MessageType>
        <Filter>/symbol = "{{SYMBOL}}"</Filter>
      </Options>
    </Do>
  </Action>
</Actions>
"""


@pytest.fixture(scope="module")
def acting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("examples"), elements=ELEMENTS) as server:
        server.process.send_signal(signal.SIGUSR1)  # nobody gets in before
        assert server.logs("entitlement switched off")
        yield server


def test_deactivate_and_reactivate_security_on_signals(acting: RunningServer) -> None:
    logon = {"c": "logon", "cid": "1", "client_name": "n", "mt": "json", "a": "processed"}
    with acting.connect() as peer:
        assert peer.ask(logon)["status"] == "success"
    acting.process.send_signal(signal.SIGUSR2)
    assert acting.logs("entitlement switched on")
    with acting.connect() as peer:
        assert peer.ask(logon)["status"] == "failure"
    acting.process.send_signal(signal.SIGUSR1)
    assert acting.waits_for(lambda log: log.count("entitlement switched off") == 2)


def test_archive_journals_once_a_week(acting: RunningServer) -> None:
    directory = acting.log_file.parent
    with acting.log_on("filler") as peer:
        for number in range(1, 13):
            peer.publish("orders", b"[%s]" % (b"1," * 500_000), s=number)
        peer.flush()
    index = directory / "journal" / "test-instance.0000000000.index.gz"
    assert acting.waits_for(lambda _: index.exists())
    moment = time.time() - 8 * 86_400
    os.utime(directory / "journal" / "test-instance.0000000000.journal", (moment, moment))
    assert acting.logs("test-instance.0000000000.journal has been archived; it is now archive/")
    assert acting.logs("29-0100 action module invoked: amps-action-do-archive-journal on")


def test_record_expired_messages_to_a_dead_letter_topic(acting: RunningServer) -> None:
    with acting.log_on("r") as reader, acting.log_on("p") as publisher:
        reader.subscribe("dead-letter", "1")
        publisher.publish("interesting", b'{"id":1}', e=1)
        header, body = reader.receive()
        assert header["t"] == "dead-letter"
        assert json.loads(body) == {"topic": "interesting", "message": {"id": 1}}


def test_query_a_topic_and_echo_and_look_after_the_file_system(acting: RunningServer) -> None:
    with acting.log_on("p", "xml") as publisher:
        publisher.publish(
            "SOW_TOPIC",
            b'<Trans><Id>1</Id><Order Oname="PURCHASE"/><Value>12.5</Value></Trans>',
        )
        publisher.flush()
    acting.process.send_signal(signal.SIGHUP)
    assert acting.logs("29-0103 12.5 was in the message")
    assert acting.logs("29-0103 ALERT: You're getting low on space!")
    assert acting.process.poll() is None


def test_message_affinity(acting: RunningServer) -> None:
    """Symbols go to those who process them; what one leaves behind goes to the other."""
    control = "symbol_processor_assignments"
    with acting.log_on("one") as one, acting.log_on("two") as two, acting.log_on("p") as publisher:
        one.subscribe(control, "1")
        for number, symbol in enumerate("ABA"):
            trade = {"id": number, "symbol": symbol}
            publisher.publish("trades", json.dumps(trade).encode())
        told = [assignment(one), assignment(one)]
        assert told == ["A assign one match", "B assign one match"]
        two.subscribe(control, "1")
        publisher.publish("trades", b'{"id":9,"symbol":"C"}')
        assert assignment(two) == "C assign two match"
        one.send({"c": "unsubscribe", "sub_id": "1"})
        assert sorted(assignment(two) for _ in range(4)) == [
            "A assign two unsubscribe",
            "A unassign one unsubscribe",
            "B assign two unsubscribe",
            "B unassign one unsubscribe",
        ]


def assignment(peer: RawPeer) -> str:
    """The next thing that a processor is told."""
    told = json.loads(peer.receive()[1])
    return f"{told['symbol']} {told['event']} {told['client_name']} {told['reason']}"
