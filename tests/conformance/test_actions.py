"""The action examples of the AMPS User Guide, each on a running server."""

from __future__ import annotations

import gzip
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.server import (
    CONFIGURATION,
    RunningServer,
    free_port,
    running_configuration,
    running_server,
)
from tests.support.waiting import WAIT_SECONDS

ACTIONS = """
<SOW>
  <Topic>
    <Name>Orders</Name>
    <MessageType>nvfix</MessageType>
    <Key>/id</Key>
    <Durability>transient</Durability>
  </Topic>
</SOW>
<MiniDumpDirectory>.</MiniDumpDirectory>
<Actions>
  <Action>
    <On><Module>amps-action-on-startup</Module></On>
    <Do>
      <Module>amps-action-do-echo-message</Module>
      <Options><Message>instance={{AMPS_INSTANCE_NAME}}</Message></Options>
    </Do>
  </Action>
  <Action>
    <On><Module>amps-action-on-shutdown</Module></On>
    <Do>
      <Module>amps-action-do-echo-message</Module>
      <Options><Message>going down</Message></Options>
    </Do>
  </Action>
  <Action>
    <On>
      <Module>amps-action-on-signal</Module>
      <Options><Signal>SIGUSR1</Signal></Options>
    </On>
    <Do>
      <Module>amps-action-do-increment-counter</Module>
      <Options><Key>MY_COUNTER</Key><Value>CURRENT_COUNTER_VALUE</Value></Options>
    </Do>
    <Do>
      <Module>amps-action-do-echo-message</Module>
      <Options><Message>got {{CURRENT_COUNTER_VALUE}} SIGUSR1 signals.</Message></Options>
    </Do>
  </Action>
  <Action>
    <On>
      <Module>amps-action-on-publish-message</Module>
      <Options>
        <Topic>message-sow</Topic>
        <MessageType>xml</MessageType>
        <MessageSource>local</MessageSource>
      </Options>
    </On>
    <Do>
      <Module>amps-action-do-extract-values</Module>
      <Options>
        <MessageType>xml</MessageType>
        <Data>{{AMPS_DATA}}</Data>
        <Value>VALUE = /info/value</Value>
        <Value>QTY = /info/quantity</Value>
      </Options>
    </Do>
    <Do>
      <Module>amps-action-do-echo-message</Module>
      <Options><Message>value {{VALUE}} qty {{QTY}}</Message></Options>
    </Do>
  </Action>
  <Action>
    <On>
      <Module>amps-action-on-publish-message</Module>
      <Options><Topic>Orders</Topic><MessageType>nvfix</MessageType></Options>
    </On>
    <Do>
      <Module>amps-action-do-publish-message</Module>
      <Options>
        <MessageType>nvfix</MessageType>
        <Topic>DuplicateOrders</Topic>
        <Data>{{AMPS_DATA}}</Data>
      </Options>
    </Do>
  </Action>
  <Action>
    <On>
      <Module>amps-action-on-message-condition-timeout</Module>
      <Options>
        <MessageType>nvfix</MessageType>
        <Topic>Orders</Topic>
        <Filter>/status = 'PENDING'</Filter>
        <Duration>200ms</Duration>
      </Options>
    </On>
    <Do>
      <Module>amps-action-do-publish-message</Module>
      <Options>
        <MessageType>nvfix</MessageType>
        <Topic>Orders_Stale</Topic>
        <Data>{{AMPS_DATA}}</Data>
      </Options>
    </Do>
  </Action>
  <Action>
    <On><Module>amps-action-on-disconnect-client</Module></On>
    <Do>
      <Module>amps-action-do-reset-entitlement</Module>
      <Options><AuthenticationId>{{AMPS_AUTHENTICATION_ID}}</AuthenticationId></Options>
    </Do>
  </Action>
  <Action>
    <On><Module>amps-action-on-logon-client</Module></On>
    <If>
      <Module>amps-action-if-condition</Module>
      <Options><Condition>'{{AMPS_CLIENT_NAME}}' LIKE 'important'</Condition></Options>
    </If>
    <Do>
      <Module>amps-action-do-publish-message</Module>
      <Options>
        <Topic>important-logon-notification</Topic>
        <MessageType>json</MessageType>
        <Data>{"name":"{{AMPS_CLIENT_NAME}}"}</Data>
      </Options>
    </Do>
  </Action>
  <Action>
    <On>
      <Module>amps-action-on-publish-message</Module>
      <Options><Topic>switch</Topic><MessageType>json</MessageType></Options>
    </On>
    <Do>
      <Module>amps-action-do-extract-values</Module>
      <Options>
        <MessageType>json</MessageType>
        <Data>{{AMPS_DATA}}</Data>
        <Value>NAME=/transport</Value>
      </Options>
    </Do>
    <Do>
      <Module>amps-action-do-disable-transport</Module>
      <Options><Transport>{{NAME}}</Transport></Options>
    </Do>
  </Action>
  <Action>
    <On>
      <Module>amps-action-on-publish-message</Module>
      <Options><Topic>run</Topic><MessageType>json</MessageType></Options>
    </On>
    <Do>
      <Module>amps-action-do-execute-system</Module>
      <Options><Command>printf %s {{AMPS_DATA}} > ran; sleep 60</Command>
      <Timeout>500ms</Timeout></Options>
    </Do>
  </Action>
  <Action>
    <On>
      <Module>amps-action-on-file-change</Module>
      <Options><Path>list.txt</Path></Options>
    </On>
    <Do>
      <Module>amps-action-do-echo-message</Module>
      <Options><Message>{{AMPS_FILE_PATH}} was {{AMPS_FILE_CHANGE}}</Message></Options>
    </Do>
  </Action>
  <Action>
    <On><Module>amps-action-on-minidump</Module></On>
    <Do>
      <Module>amps-action-do-echo-message</Module>
      <Options><Message>dumped to {{AMPS_MINIDUMP_PATH}}</Message></Options>
    </Do>
  </Action>
</Actions>
"""


@pytest.fixture(scope="module")
def acting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("acting"), elements=ACTIONS) as server:
        yield server


def test_echo_when_amps_starts(acting: RunningServer) -> None:
    assert acting.logs("instance=test-instance")
    log = acting.log()
    assert log.index("instance=test-instance") < log.index("initialization completed")


def test_increment_a_counter_and_echo_a_message(acting: RunningServer) -> None:
    for count in (1, 2):
        acting.process.send_signal(signal.SIGUSR1)
        assert acting.logs(f"got {count} SIGUSR1 signals.")
    assert acting.logs("29-0100 action module invoked: amps-action-do-echo-message on signal")


def test_extract_values_from_a_published_message(acting: RunningServer) -> None:
    with acting.log_on(message_type="xml") as peer:
        body = b"<info><value>12.5</value><quantity>3</quantity></info>"
        peer.send({"c": "publish", "t": "message-sow"}, body)
        assert acting.logs("value 12.5 qty 3")


def test_copy_messages_to_a_different_topic(acting: RunningServer) -> None:
    with acting.log_on("r", "nvfix") as reader, acting.log_on("p", "nvfix") as publisher:
        reader.subscribe("DuplicateOrders", "1")
        bodies = [b"id=%d\x01" % number for number in range(20)]
        for body in bodies:
            publisher.send({"c": "publish", "t": "Orders"}, body)
        assert [reader.receive()[1] for _ in bodies] == bodies


def test_copy_messages_that_exceed_a_timeout(acting: RunningServer) -> None:
    with acting.log_on("r", "nvfix") as reader, acting.log_on("p", "nvfix") as publisher:
        reader.subscribe("Orders_Stale", "1")
        publisher.send({"c": "publish", "t": "Orders"}, b"id=a\x01status=PENDING\x01")
        publisher.send({"c": "publish", "t": "Orders"}, b"id=b\x01status=PENDING\x01")
        publisher.send({"c": "publish", "t": "Orders"}, b"id=a\x01status=DONE\x01")
        assert reader.receive()[1] == b"id=b\x01status=PENDING\x01"


def test_reset_entitlements_for_a_disconnected_client(acting: RunningServer) -> None:
    with acting.log_on("leaving"):
        pass
    assert acting.logs("25-0002 entitlement has been reset")


def test_a_condition_over_variables(acting: RunningServer) -> None:
    with acting.log_on("reader") as reader:
        reader.subscribe("important-logon-notification", "1")
        for name in ("nobody", "very important client"):
            with acting.log_on(name):
                pass
        assert reader.receive()[1] == b'{"name":"very important client"}'


def test_a_hanging_command_with_hostile_data_delays_nobody(acting: RunningServer) -> None:
    data = b"'; touch pwned; echo \"`touch pwned` $(touch pwned)"
    with acting.log_on("s") as peer:
        peer.subscribe("run", "1")
        peer.send({"c": "publish", "t": "run"}, data)
        assert peer.receive()[1] == data  # while the command hangs
        assert acting.logs("failed: it took longer than 0.5 seconds")
    directory = acting.log_file.parent
    assert (directory / "ran").read_bytes() == data
    assert not (directory / "pwned").exists()


def test_a_step_that_fails_is_one_entry(acting: RunningServer) -> None:
    with acting.log_on() as peer:
        peer.send({"c": "publish", "t": "switch"}, b'{"transport":"none"}')
        assert acting.logs("there is no transport named 'none'")
        assert peer.ask({"c": "flush", "cid": "f", "a": "processed"})["status"] == "success"


def test_files_that_change(acting: RunningServer) -> None:
    directory = acting.log_file.parent
    (directory / "list.txt").write_text("one")
    assert acting.logs("list.txt was created")
    (directory / "list.txt").write_text("two")
    assert acting.logs("list.txt was modified")
    (directory / "list.txt").unlink()
    assert acting.logs("list.txt was deleted")
    with (directory / "config.xml").open("a") as configuration:
        configuration.write("<!-- changed -->")
    assert acting.logs("config.xml has been modified; the instance keeps the configuration")


def test_a_minidump_on_sigquit(acting: RunningServer) -> None:
    acting.process.send_signal(signal.SIGQUIT)
    assert acting.logs("29-0103 dumped to ")
    (dump,) = acting.log_file.parent.glob("minidump-*.txt")
    assert dump.stat().st_mode & 0o777 == 0o640
    text = dump.read_text()
    for part in ("instance test-instance", "(MainThread)", "sessions", "generation 2", ".py"):
        assert part in text


def test_minidumps_go_to_their_directory_which_is_made(tmp_path: Path) -> None:
    directory = tmp_path / "dumps" / "here"
    elements = f"<MiniDumpDirectory>{directory}</MiniDumpDirectory>"
    with running_server(tmp_path, elements=elements) as server:
        server.process.send_signal(signal.SIGQUIT)
        assert server.logs(f"minidump written to {directory}/minidump-test-instance-")
    assert len(list(directory.iterdir())) == 1


def test_no_minidumps_where_they_are_disabled(tmp_path: Path) -> None:
    elements = "<MiniDumpDirectory>disabled</MiniDumpDirectory>"
    with running_server(tmp_path, elements=elements) as server:
        server.process.send_signal(signal.SIGQUIT)
        assert server.logs("no minidump is written: MiniDumpDirectory is disabled")
    assert not list(tmp_path.rglob("minidump*"))


def test_the_default_actions_of_signals(tmp_path: Path) -> None:
    """Security is switched off and on again, and the server stops as it always did."""
    closed = """
      <Authentication><Module>amps-default-no-authentication-module</Module></Authentication>
      <Entitlement><Module>amps-default-no-entitlement-module</Module></Entitlement>
    """
    logon = {"c": "logon", "cid": "1", "client_name": "n", "mt": "json", "a": "processed"}
    with running_server(tmp_path, elements=closed) as server:
        with server.connect() as peer:
            assert peer.ask(logon)["status"] == "failure"
        server.process.send_signal(signal.SIGUSR1)
        assert server.logs("entitlement switched off")
        with server.connect() as peer:
            assert peer.ask(logon)["status"] == "success"
            publish = {"c": "publish", "t": "x", "a": "processed", "s": 1}
            for number in (1, 2):
                assert peer.ask({**publish, "s": number})["status"] == "success"
            server.process.send_signal(signal.SIGUSR2)
            assert server.logs("entitlement switched on")
            assert peer.ask({**publish, "s": 3})["status"] == "failure"  # though it was allowed
        with server.connect() as peer:
            assert peer.ask(logon)["status"] == "failure"
        assert server.stop() == 0
        assert server.logs("shutdown requested by signal SIGTERM")


def test_shut_down_when_a_file_system_is_full(tmp_path: Path) -> None:
    full = """
      <Actions>
        <Action>
          <On><Module>amps-action-on-schedule</Module>
            <Options><Every>300ms</Every><Name>disk</Name></Options></On>
          <If><Module>amps-action-if-file-system-usage</Module>
            <Options><Path>./</Path><GreaterThan>0%</GreaterThan></Options></If>
          <Do><Module>amps-action-do-shutdown</Module></Do>
        </Action>
        <Action>
          <On><Module>amps-action-on-shutdown</Module></On>
          <Do><Module>amps-action-do-echo-message</Module>
            <Options><Message>going down</Message></Options></Do>
        </Action>
      </Actions>
    """
    with running_server(tmp_path, elements=full) as server:
        assert server.process.wait(WAIT_SECONDS) == 0
        log = server.log()
        assert "shutdown requested by schedule disk" in log
        assert log.index("29-0103 going down") < log.index("closed:")


def test_logs_are_rotated_compressed_and_removed(tmp_path: Path) -> None:
    """The usual upkeep of logs, in one action: the file that is written to stays as it is."""
    upkeep = """
      <Actions>
        <Action>
          <On><Module>amps-action-on-signal</Module>
            <Options><Signal>SIGUSR1</Signal></Options></On>
          <Do><Module>amps-action-do-rotate-logs</Module></Do>
          <Do><Module>amps-action-do-compress-files</Module>
            <Options><Age>0s</Age><Pattern>amps-*.log</Pattern></Options></Do>
          <Do><Module>amps-action-do-remove-files</Module>
            <Options><Age>0s</Age><Pattern>amps-*.gz</Pattern><Keep>1</Keep></Options></Do>
          <Do><Module>amps-action-do-echo-message</Module>
            <Options><Message>logs are done</Message></Options></Do>
        </Action>
      </Actions>
    """
    port = free_port()
    text = CONFIGURATION.format(port=port, transports="", level="info", elements=upkeep)
    target = "<Target><Protocol>file</Protocol><Level>info</Level><FileName>amps-%n.log</FileName>"
    text = text.replace("<Logging>", f"<Logging>{target}</Target>")
    with running_configuration(tmp_path, text, port) as server:
        for count in (1, 2, 3):
            server.process.send_signal(signal.SIGUSR1)
            assert server.waits_for(lambda log: log.count("29-0103 logs are done") == count)  # noqa: B023 - waited for at once
        files = sorted(path.name for path in tmp_path.glob("amps-*"))
        assert files == ["amps-00002.log.gz", "amps-00003.log"]
        with gzip.open(tmp_path / "amps-00002.log.gz", "rt") as old:
            assert "29-0103 logs are done" in old.read()


def test_a_signal_of_the_configuration_takes_the_place_of_the_default(tmp_path: Path) -> None:
    override = """
      <Actions>
        <Action>
          <On><Module>amps-action-on-signal</Module>
            <Options><Signal>SIGHUP</Signal></Options></On>
          <Do><Module>amps-action-do-echo-message</Module>
            <Options><Message>no reason to stop</Message></Options></Do>
        </Action>
      </Actions>
    """
    with running_server(tmp_path, elements=override) as server:
        server.process.send_signal(signal.SIGHUP)
        assert server.logs("29-0103 no reason to stop")
        assert server.stop() == 0


def test_a_transport_goes_and_comes_by_action(tmp_path: Path) -> None:
    switches = """
      <Actions>
        <Action>
          <On><Module>amps-action-on-signal</Module>
            <Options><Signal>SIGUSR1</Signal></Options></On>
          <Do><Module>amps-action-do-disable-transport</Module>
            <Options><Transport>any-tcp</Transport></Options></Do>
        </Action>
        <Action>
          <On><Module>amps-action-on-signal</Module>
            <Options><Signal>SIGUSR2</Signal></Options></On>
          <Do><Module>amps-action-do-enable-transport</Module></Do>
        </Action>
      </Actions>
    """
    with running_server(tmp_path, elements=switches) as server:
        with server.log_on():
            server.process.send_signal(signal.SIGUSR1)
            assert server.logs("07-0013")
        with pytest.raises(OSError, match="refused"):
            server.connect()
        server.process.send_signal(signal.SIGUSR2)
        assert server.waits_for(lambda log: log.count("11-0001") == 2)
        with server.log_on():
            pass
