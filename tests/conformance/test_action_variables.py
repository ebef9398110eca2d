"""Every context variable that the tables of the AMPS User Guide promise, on a running server."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator

import pytest

from actions.catalogue import ON_MODULES
from tests.support.raw import RawPeer
from tests.support.server import RunningServer, running_server

ORDERS = {"Topic": "orders", "MessageType": "json"}
EVENTS = {"Topic": "events", "MessageType": "json"}
OPEN = {**ORDERS, "Filter": "/s = 'open'"}
ALERT = {"OOFEvent": "DONE", "TimeoutEvent": "LATE", "EventVariable": "WHAT", "Duration": "150ms"}

USES: list[tuple[str, str, dict[str, str]]] = [
    ("connect", "connect-client", {}),
    ("logon", "logon-client", {}),
    ("disconnect", "disconnect-client", {}),
    ("subscribe", "subscribe", EVENTS),
    ("unsubscribe", "unsubscribe", EVENTS),
    ("publish", "publish-message", EVENTS),
    ("record", "publish-message", ORDERS),
    ("unlogged", "publish-message", {"Topic": "unlogged", "MessageType": "json"}),
    ("deliver", "deliver-message", EVENTS),
    ("oof", "oof-message", {**OPEN, "Type": "match"}),
    ("delete", "sow-delete-message", ORDERS),
    ("expire", "sow-expire-message", ORDERS),
    ("timeout", "message-condition-timeout", {**OPEN, "Duration": "100ms"}),
    ("alert", "alert", {**OPEN, **ALERT}),
    ("minidump", "minidump", {}),
]
"""A word for the log, the module, its options."""


def action(word: str, module: str, options: dict[str, str]) -> str:
    """An action that writes all that its event has said about itself."""
    rule = ON_MODULES[f"amps-action-on-{module}"]
    named = [options[option] for option in rule.exports_named_by]
    values = " ".join(f"{name}=[{{{{{name}}}}}]" for name in (*rule.exports, *named))
    given = "".join(f"<{name}>{text}</{name}>" for name, text in options.items())
    return f"""
      <Action>
        <On><Module>{rule.name}</Module><Options>{given}</Options></On>
        <Do>
          <Module>amps-action-do-echo-message</Module>
          <Options><Message>{word}: {values}</Message></Options>
        </Do>
      </Action>
    """.replace("<Options></Options>", "")


ELEMENTS = f"""
<SOW>
  <Topic>
    <Name>orders</Name><MessageType>json</MessageType><Key>/id</Key>
    <FileName>orders.sow</FileName><Expiration>enabled</Expiration>
  </Topic>
</SOW>
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory>
  <JournalSize>10MB</JournalSize>
  <FlushInterval>1ms</FlushInterval>
  <Topic><Name>orders|events</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
<Authentication>
  <Module>amps-default-authentication-module</Module>
  <Options><AllowSpoofing>true</AllowSpoofing></Options>
</Authentication>
<MiniDumpDirectory>.</MiniDumpDirectory>
<Actions>{"".join(action(*use) for use in USES)}</Actions>
"""


@pytest.fixture(scope="module")
def acting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("variables"), elements=ELEMENTS) as server:
        yield server


def logs(server: RunningServer, line: str) -> bool:
    """Whether the log soon has a line; `#` stands for a bookmark, `@` for a time."""
    pattern = re.escape(line).replace("\\#", r"\d+\|\d+\|").replace("@", r"\d{8}T\d{6}\.\d{6}Z")
    wanted = re.compile(r"\] info: 29-0103 " + pattern + "$", re.MULTILINE)
    return server.waits_for(lambda log: wanted.search(log) is not None)


def log_on(server: RunningServer, name: str) -> RawPeer:
    """A client with a user name."""
    peer = server.connect()
    logon = {"c": "logon", "cid": "1", "client_name": name, "mt": "json", "a": "processed"}
    assert peer.ask(logon | {"user_id": "ann"})["status"] == "success"
    return peer


def test_what_clients_do(acting: RunningServer) -> None:
    with log_on(acting, "trader") as peer:
        peer.subscribe("events", "1", f="/n > 1", o="timestamp")
        peer.send({"c": "unsubscribe", "sub_id": "1"})
        peer.flush()
    connection = r"AMPS_CONNECTION_NAME=[test-instance-any-tcp-1]"
    of_client = "AMPS_TOPIC=[events] AMPS_CLIENT_NAME=[trader]"
    terms = "AMPS_OPTIONS=[timestamp] AMPS_FILTER=[/n > 1]"
    assert logs(acting, f"connect: AMPS_CLIENT_NAME=[test-instance-any-tcp-1] {connection}")
    named = f"AMPS_CLIENT_NAME=[trader] {connection} AMPS_AUTHENTICATION_ID=[ann]"
    assert logs(acting, f"logon: {named}")
    assert logs(acting, f"subscribe: {of_client} {terms}")
    assert logs(acting, f"unsubscribe: {of_client} {terms}")
    assert logs(acting, f"disconnect: {named}")


def test_messages_of_a_topic_in_the_transaction_log(acting: RunningServer) -> None:
    with log_on(acting, "p") as publisher, log_on(acting, "r") as reader:
        reader.subscribe("events", "1", bm="0|1|")
        reader.subscribe("events", "2")
        publisher.publish("events", b'{"n":1}', s=7, x="cor")
        marks = {header.get("bm") for header, _ in (reader.receive(), reader.receive())}
        (bookmark,) = marks - {None}
        message = 'AMPS_TOPIC=[events] AMPS_DATA=[{"n":1}] AMPS_DATA_LENGTH=[7]'
        marked = f"{message} AMPS_BOOKMARK=[{bookmark}]"
        assert logs(acting, f"publish: {marked} AMPS_TIMESTAMP=[@] AMPS_CLIENT_NAME=[p]")
        delivered = f"deliver: {marked} AMPS_CLIENT_NAME=[r] AMPS_CORRELATION_ID=[cor]"
        assert logs(acting, delivered)
        assert acting.waits_for(lambda log: log.count(delivered) == 2)  # from the log, and live
        publisher.publish("unlogged", b"{}")
        assert logs(
            acting,
            "unlogged: AMPS_TOPIC=[unlogged] AMPS_DATA=[{}] AMPS_DATA_LENGTH=[2] "
            "AMPS_BOOKMARK=[] AMPS_TIMESTAMP=[@] AMPS_CLIENT_NAME=[p]",
        )


def test_records(acting: RunningServer) -> None:
    opened, done = '{"id":1,"s":"open"}', '{"id":1,"s":"done"}'
    now = f"AMPS_TOPIC=[orders] AMPS_DATA=[{opened}] AMPS_DATA_LENGTH=[19]"
    then = f"AMPS_TOPIC=[orders] AMPS_DATA=[{done}] AMPS_DATA_LENGTH=[19]"
    tracked = "AMPS_BOOKMARK=[#] AMPS_TIMESTAMP=[@] AMPS_CLIENT_NAME=[p]"
    with log_on(acting, "p") as publisher:
        publisher.publish("orders", opened.encode(), s=8, x="cor")
        assert logs(acting, f"record: {now} {tracked}")
        assert acting.waits_for(lambda log: "29-0103 timeout: " in log and "29-0103 alert: " in log)
        (key,) = set(re.findall(r"AMPS_SOW_KEY=\[\d+\]", acting.log()))
        assert logs(acting, f"timeout: {now} {tracked} {key}")
        assert logs(acting, f"alert: {now} {tracked} {key} WHAT=[LATE]")
        publisher.publish("orders", done.encode(), s=9, x="cor")
        assert logs(
            acting, f"oof: {then} AMPS_PREVIOUS_DATA=[{opened}] AMPS_PREVIOUS_DATA_LENGTH=[19]"
        )
        publisher.publish("orders", opened.encode(), s=10, x="cor")
        publisher.publish("orders", done.encode(), s=11, x="cor")
        assert logs(acting, f"alert: {then} {tracked} {key} WHAT=[DONE]")
        publisher.send({"c": "sow_delete", "t": "orders", "f": "/id = 1", "s": 12})
        assert logs(acting, f"delete: {then} AMPS_CORRELATION_ID=[cor]")
        publisher.publish("orders", done.encode(), s=13, e=1, x="late")
        assert logs(acting, f"expire: {then} AMPS_REASON=[time_limit] AMPS_CORRELATION_ID=[late]")


def test_a_minidump(acting: RunningServer) -> None:
    acting.process.send_signal(signal.SIGQUIT)
    told = re.compile(r"29-0103 minidump: AMPS_MINIDUMP_PATH=\[(.*)\]")
    assert acting.waits_for(lambda log: told.search(log) is not None)
    (path,) = told.findall(acting.log())
    assert (acting.log_file.parent / path).is_file()
