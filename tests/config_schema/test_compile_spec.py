"""What a configuration means: the description that the compiler makes of it, and the defaults."""

from pathlib import Path

import pytest

from config_schema.compile import compile_config
from config_schema.document import load
from config_schema.problems import Problems
from config_schema.spec import (
    ConflatedTopicSpec,
    InstanceSpec,
    QueueSpec,
    SowSpec,
    TopicRef,
    TopicSpec,
    TransportSpec,
    ViewSpec,
)
from config_schema.validate import validate
from tests.config_schema.program import Program

SECOND = 1_000_000_000
DAY = 86_400 * SECOND

FULL = """
<AMPSConfig>
  <Name>prices-1</Name>
  <Group>prices</Group>
  <MessageMemoryLimit>1GB</MessageMemoryLimit>
  <ClientMaxCapacity>40%</ClientMaxCapacity>
  <MiniDumpDirectory>disabled</MiniDumpDirectory>
  <SOWStatisticsInterval>10s</SOWStatisticsInterval>
  <Admin>
    <InetAddr>localhost:8085</InetAddr>
    <SQLTransport>browser</SQLTransport>
  </Admin>
  <Transports>
    <Transport>
      <Name>any-tcp</Name>
      <Type>TCP</Type>
      <InetAddr>0.0.0.0:9007</InetAddr>
      <Protocol>json</Protocol>
      <InitialState>disabled</InitialState>
      <ClientMessageAgeLimit>30s</ClientMessageAgeLimit>
    </Transport>
    <Transport>
      <Name>browser</Name>
      <Type>tcp</Type>
      <InetAddr>[::1]:9008</InetAddr>
      <Protocol>websocket</Protocol>
      <MessageType>json</MessageType>
      <Certificate>cert.pem</Certificate>
      <PrivateKey>key.pem</PrivateKey>
    </Transport>
  </Transports>
  <Logging>
    <Target>
      <Protocol>file</Protocol>
      <FileName>amps-%n.log</FileName>
      <RotationThreshold>2MB</RotationThreshold>
      <Level>Warning</Level>
      <Levels>trace, info</Levels>
      <ExcludeErrors>12-.*</ExcludeErrors>
    </Target>
  </Logging>
  <SOW>
    <Topic>
      <Topic>orders</Topic>
      <MessageType>json</MessageType>
      <Key>/id</Key>
      <Key>/desk</Key>
      <FileName>./sow/%n.sow</FileName>
      <Expiration>1d</Expiration>
      <HashIndex><Key>/symbol</Key><Key>/side</Key></HashIndex>
    </Topic>
    <Topic>
      <Name>fix.last</Name>
      <MessageType>fix</MessageType>
      <Durability>transient</Durability>
      <Expiration>enabled</Expiration>
    </Topic>
    <ViewDefinition>
      <Name>totals</Name>
      <MessageType>json</MessageType>
      <UnderlyingTopic>
        <Join>[orders].[/id] = [fix].[fix.last]./11</Join>
      </UnderlyingTopic>
      <Projection><Field>SUM([json].[orders]./qty) AS /qty</Field></Projection>
      <Grouping><Field>[orders]./symbol</Field></Grouping>
    </ViewDefinition>
    <ConflatedTopic>
      <Name>orders-C</Name>
      <MessageType>json</MessageType>
      <UnderlyingTopic>orders</UnderlyingTopic>
    </ConflatedTopic>
    <Queue>
      <Name>work</Name>
      <MessageType>json</MessageType>
      <UnderlyingTopic>^jobs/</UnderlyingTopic>
      <DefaultPublishTarget>jobs/direct</DefaultPublishTarget>
      <Semantics>at-most-once</Semantics>
    </Queue>
  </SOW>
  <TransactionLog>
    <JournalDirectory>./journal</JournalDirectory>
    <MinJournalSize>1MB</MinJournalSize>
    <Topic><Name>jobs/.*</Name><MessageType>json</MessageType></Topic>
  </TransactionLog>
  <Replication>
    <Destination>
      <Name>prices-2</Name>
      <SyncType>sync</SyncType>
      <Topic><Name>^jobs/</Name><MessageType>json</MessageType></Topic>
      <Transport>
        <Type>amps-replication</Type>
        <InetAddr>second:9010</InetAddr>
        <InetAddr>third:9010</InetAddr>
      </Transport>
    </Destination>
  </Replication>
  <Actions>
    <Action>
      <On>
        <Module>amps-action-on-schedule</Module>
        <Options><Every>1h</Every></Options>
      </On>
      <Do><Module>amps-action-do-rotate-logs</Module></Do>
      <If>
        <Module>amps-action-if-condition</Module>
        <Options><Condition>1 = 1</Condition></Options>
      </If>
      <Do>
        <Module>amps-action-do-echo-message</Module>
        <Options><Message>rotated</Message></Options>
      </Do>
    </Action>
  </Actions>
</AMPSConfig>
"""


def compile_text(text: str, directory: Path) -> InstanceSpec:
    path = directory / "config.xml"
    path.write_text(text.strip())
    problems = Problems()
    document = load(str(path), defines={}, environ={}, problems=problems)
    assert document is not None
    spec = compile_config(validate(document, problems), Program(), problems)
    assert spec is not None, "\n".join(map(str, problems))
    return spec


@pytest.fixture
def full(tmp_path: Path) -> InstanceSpec:
    return compile_text(FULL, tmp_path)


@pytest.fixture
def minimal(tmp_path: Path) -> InstanceSpec:
    return compile_text("<AMPSConfig><Name>only</Name></AMPSConfig>", tmp_path)


def test_an_instance_with_nothing_but_a_name_has_the_documented_defaults(
    minimal: InstanceSpec,
) -> None:
    assert minimal.group == "only"
    assert minimal.mini_dump_directory == "/tmp"
    assert minimal.mini_dump_file_mask == 0o640
    assert minimal.regex_topic_support
    assert minimal.tuning.queue_delivery_flush_interval == 250_000
    assert (minimal.transports, minimal.sow, minimal.admin) == ((), (), None)
    assert minimal.limits.message_memory_limit is None


def test_instance_values_have_units(full: InstanceSpec) -> None:
    assert (full.name, full.group) == ("prices-1", "prices")
    assert full.limits.message_memory_limit == 1 << 30
    assert full.limits.client_max_capacity == 40
    assert full.mini_dump_directory is None
    assert full.sow_stats_interval == 10 * SECOND


def transport(spec: InstanceSpec, name: str) -> TransportSpec:
    return next(transport for transport in spec.transports if transport.name == name)


def test_a_transport_says_where_it_listens_and_for_what(full: InstanceSpec) -> None:
    tcp, browser = transport(full, "any-tcp"), transport(full, "browser")
    assert (tcp.type, tcp.protocol, tcp.message_type) == ("tcp", "amps", None)
    assert tcp.inet_addr is not None
    assert (tcp.inet_addr.host, tcp.inet_addr.port, tcp.inet_addr.family) == (
        "0.0.0.0",
        9007,
        "ipv4",
    )
    assert not tcp.initial_state_enabled
    assert tcp.limits.client_message_age_limit == 30 * SECOND
    assert tcp.tls is None
    assert str(browser.inet_addr) == "[::1]:9008"
    assert browser.tls is not None
    assert browser.tls.protocols == ("TLSv1.2", "TLSv1.3")
    assert tcp.location.line == 13


def test_admin_has_its_defaults(full: InstanceSpec) -> None:
    assert full.admin is not None
    assert (full.admin.file_name, full.admin.interval) == (":memory:", 10 * SECOND)
    assert (full.admin.www_authenticate, full.admin.sql_transport) == ("Negotiate", "browser")


def test_a_log_target_holds_levels_and_limits(full: InstanceSpec) -> None:
    (target,) = full.logging
    assert (target.level, target.levels) == ("warning", ("trace", "info"))
    assert target.rotation_threshold == 2 << 20
    assert (target.include_errors, target.exclude_errors) == ((), ("12-.*",))


def stored(spec: InstanceSpec, name: str) -> SowSpec:
    return next(topic for topic in spec.sow if topic.name == name)


def test_a_topic_has_keys_indexes_and_its_own_file(full: InstanceSpec) -> None:
    orders = stored(full, "orders")
    assert isinstance(orders, TopicSpec)
    assert (orders.keys, orders.key_domain) == (("/id", "/desk"), "orders")
    assert orders.file_name == "./sow/orders.json.sow"
    assert (orders.expiration_enabled, orders.expiration) == (True, DAY)
    assert orders.hash_indexes == (("/symbol", "/side"),)
    assert not orders.name_has_regex_characters


def test_a_transient_topic_with_a_dotted_name_is_marked(full: InstanceSpec) -> None:
    last = stored(full, "fix.last")
    assert isinstance(last, TopicSpec)
    assert (last.durability, last.file_name) == ("transient", None)
    assert (last.expiration_enabled, last.expiration) == (True, None)
    assert last.name_has_regex_characters


def test_a_view_knows_its_topics_in_order(full: InstanceSpec) -> None:
    view = stored(full, "totals")
    assert isinstance(view, ViewSpec)
    assert view.underlying == (TopicRef("orders", "json"), TopicRef("fix.last", "fix"))
    (join,) = view.joins
    assert (join.left.field, join.right.field) == ("/id", "/11")
    assert not view.inline_conflation


def test_a_conflated_topic_updates_every_five_seconds(full: InstanceSpec) -> None:
    conflated = stored(full, "orders-C")
    assert isinstance(conflated, ConflatedTopicSpec)
    assert conflated.interval == 5 * SECOND
    assert conflated.underlying == TopicRef("orders", "json")


def test_a_queue_has_the_defaults_of_its_semantics(full: InstanceSpec) -> None:
    queue = stored(full, "work")
    assert isinstance(queue, QueueSpec)
    assert (queue.kind, queue.underlying_is_regex) == ("Queue", True)
    assert queue.default_publish_target == "jobs/direct"
    assert (queue.fairness_model, queue.leasing) == ("round-robin", "sublet")
    assert (queue.max_backlog, queue.max_per_subscription_backlog) == (None, 1)
    assert (queue.recovery_point, queue.deferred_ack_expiration) == ("epoch", DAY)


def test_a_journal_has_at_least_ten_megabytes(full: InstanceSpec) -> None:
    log = full.transaction_log
    assert log is not None
    assert (log.journal_size, log.preallocated_journal_files) == (10 << 20, 2)
    assert log.flush_interval == SECOND // 10


def test_a_destination_keeps_its_addresses_in_order(full: InstanceSpec) -> None:
    (destination,) = full.replication
    assert (destination.group, destination.sync_type) == ("prices-2", "sync")
    (outgoing,) = destination.transports
    assert [str(address) for address in outgoing.addresses] == ["second:9010", "third:9010"]


def test_a_destination_needs_neither_name_nor_sync_type(tmp_path: Path) -> None:
    """It is called by its Group, else by the first of its addresses that no other is called by."""
    transport = "<Transport><Type>amps-replication</Type><InetAddr>{}</InetAddr></Transport>"
    given = [("<Group>backup</Group>", "a:1"), ("<Group>backup</Group>", "b:1"), ("", "c:1")]
    destinations = "".join(
        f"<Destination>{group}{transport.format(address)}</Destination>" for group, address in given
    )
    spec = compile_text(
        "<AMPSConfig><Name>n</Name><TransactionLog><JournalDirectory>j</JournalDirectory>"
        "<Topic><Name>t</Name><MessageType>json</MessageType></Topic></TransactionLog>"
        f"<Replication>{destinations}</Replication></AMPSConfig>",
        tmp_path,
    )
    assert [destination.name for destination in spec.replication] == ["backup", "b:1", "c:1"]
    assert [destination.group for destination in spec.replication] == ["backup", "backup", "c:1"]
    assert {destination.sync_type for destination in spec.replication} == {"async"}


def test_a_destination_logs_on_as_the_instance_unless_it_says_otherwise(tmp_path: Path) -> None:
    def authenticator(user: str) -> str:
        return (
            "<Authenticator><Module>amps-default-authenticator-module</Module>"
            f"<Options><User>{user}</User></Options></Authenticator>"
        )

    transport = "<Transport><InetAddr>{}</InetAddr>{}</Transport>"
    spec = compile_text(
        f"<AMPSConfig><Name>a</Name>{authenticator('everywhere')}"
        "<TransactionLog><JournalDirectory>j</JournalDirectory></TransactionLog><Replication>"
        f"<Destination>{transport.format('b:1', '')}</Destination>"
        f"<Destination>{transport.format('c:1', authenticator('there'))}</Destination>"
        "</Replication></AMPSConfig>",
        tmp_path,
    )
    uses = [destination.transports[0].authenticator for destination in spec.replication]
    assert [use and use.options.get("User") for use in uses] == ["everywhere", "there"]


def test_an_action_keeps_its_steps_in_order(full: InstanceSpec) -> None:
    (action,) = full.actions
    assert [trigger.options.get("Every") for trigger in action.triggers] == ["1h"]
    assert [step.kind for step in action.steps] == ["do", "if", "do"]
    assert action.steps[2].use.options.all("Message") == ("rotated",)
