"""Transport filters: what happens to commands before they are carried out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from amperage.wire.header import Header
from config_schema.problems import Location
from config_schema.spec import ModuleSpec, ModuleUse, Option, Options
from server.security.interceptors.base import FilterError, IncomingCommand, Verdict
from server.security.interceptors.correlation_ids import CorrelationIdTimestamper
from server.security.interceptors.registry import make_filters
from tests.documentation.fences import python_files
from tests.support.raw import RawPeer
from tests.support.server import RunningServer, free_port, running_server
from tests.transports.support import transport

HERE = Location("config.xml", 7)


def options(**values: str | list[str]) -> Options:
    """Options of a module."""
    return Options(
        tuple(
            Option(name, value, (), HERE)
            for name, several in values.items()
            for value in ([several] if isinstance(several, str) else several)
        )
    )


def translated(module: str, topics: list[str], header: Header) -> Header:
    """What a translator makes of a header."""
    (made,) = make_filters([ModuleUse(module, options(Topic=topics), HERE)], ())
    command = IncomingCommand(header, b"")
    assert made.filter(command) is Verdict.PASS
    return command.header


@pytest.mark.parametrize(
    ("topics", "topic", "expected"),
    [
        (["old:new"], "old", "new"),
        (["old:new"], "older", "older"),  # a name is the whole name
        (["^/orders/na:NA"], "/orders/na/x", "NA"),  # an expression matches anywhere
        (["customer_.*:Customers"], "all_customer_1", "Customers"),
        (["a:b", "b:c"], "a", "b"),  # one translation is made, the first that fits
        (["b:c", "a:b"], "a", "b"),
        (["(?:x|y)z:n"], "yz", "n"),  # the last colon divides
        (["old:new"], None, None),
    ],
)
def test_topics_are_translated(topics: list[str], topic: str | None, expected: str | None) -> None:
    """amps-topic-translator changes the topic of every command."""
    for command in ("publish", "subscribe", "sow", "sow_delete", "unsubscribe"):
        header = translated("amps-topic-translator", topics, Header(command=command, topic=topic))
        assert header.topic == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (Header(command="subscribe"), "conflation=500ms"),
        (Header(command="sow_and_subscribe", short_options="oof"), "oof,conflation=500ms"),
        (Header(command="delta_subscribe", long_options="oof"), "oof,conflation=500ms"),
        (
            Header(command="sow_and_delta_subscribe", short_options="oof, Conflation=1s"),
            "oof, Conflation=1s",
        ),
        (
            Header(command="subscribe", short_options="conflation_key=[/a]"),
            "conflation_key=[/a],conflation=500ms",
        ),
    ],
)
def test_subscriptions_are_translated_and_conflated(given: Header, expected: str) -> None:
    """The interval is the default: a subscription's own one stays."""
    given.topic = "orders-C"
    header = translated("amps-conflated-topic-translator", ["orders-C:orders:500ms"], given)
    assert (header.topic, header.options) == ("orders", expected)


@pytest.mark.parametrize("command", ["publish", "sow", "sow_delete", "delta_publish"])
def test_other_commands_are_not_conflated(command: str) -> None:
    """amps-conflated-topic-translator is about subscriptions."""
    given = Header(command=command, topic="orders-C")
    header = translated("amps-conflated-topic-translator", ["orders-C:orders:500ms"], given)
    assert (header.topic, header.options) == ("orders-C", None)


@pytest.mark.parametrize(
    ("given", "override", "stamped"),
    [
        (Header(command="publish"), False, True),
        (Header(command="p"), False, True),
        (Header(command="delta_publish", correlation_id="mine"), False, False),
        (Header(command="delta_publish", correlation_id="mine"), True, True),
        (Header(command="subscribe"), True, False),
    ],
)
def test_publishes_are_stamped(given: Header, override: bool, stamped: bool) -> None:
    """The time is ISO 8601 in UTC; a correlation id of the publisher stays unless overridden."""
    before = given.correlation_id
    stamper = CorrelationIdTimestamper(lambda: 1_700_000_000.25, override=override)
    stamper.filter(IncomingCommand(given, b""))
    assert given.correlation_id == ("2023-11-14T22:13:20.250000Z" if stamped else before)


@pytest.mark.parametrize(
    ("use", "modules", "said"),
    [
        (
            ModuleUse("amps-topic-translator", options(Topic="no-colon"), HERE),
            (),
            "config.xml:7: amps-topic-translator: Topic 'no-colon': expected original:translated",
        ),
        (
            ModuleUse("amps-topic-translator", options(Topic="(:x"), HERE),
            (),
            "config.xml:7: amps-topic-translator: Topic: '(': not a regular expression",
        ),
        (ModuleUse("none", options(), HERE), (), "config.xml:7: there is no transport filter"),
        (
            ModuleUse("mine", options(), HERE),
            (ModuleSpec("mine", "absent.py", options(), HERE),),
            "config.xml:7: there is no file absent.py",
        ),
        (
            ModuleUse("mine", options(), HERE),
            (ModuleSpec("mine", "json", options(), HERE),),
            "config.xml:7: json has no function create_transport_filter(name, options)",
        ),
    ],
)
def test_filters_that_cannot_be_made(
    use: ModuleUse, modules: tuple[ModuleSpec, ...], said: str
) -> None:
    """The error has the place in the configuration."""
    with pytest.raises(FilterError) as raised:
        make_filters([use], modules)
    assert str(raised.value).startswith(said)


CUSTOM = '''
"""Upper-cases bodies; a body decides about its own command."""

from server.security.interceptors.base import FilterError, Verdict


class Shouting:
    header_only = False

    def __init__(self, mark):
        self.mark = mark

    def filter(self, command):
        if command.body == b"drop":
            return Verdict.DROP
        if command.body == b"disconnect":
            return Verdict.DISCONNECT
        if command.body == b"fail":
            raise RuntimeError("the filter failed")
        if command.body:
            command.body = command.body.upper() + self.mark
        return Verdict.PASS


def create_transport_filter(name, options):
    (mark,) = options["Mark"]
    return Shouting(mark.encode())
'''


@dataclass(frozen=True)
class Filtered:
    """A server with filtered transports, and their ports by name."""

    server: RunningServer
    ports: dict[str, int]

    def log_on(self, name: str) -> RawPeer:
        """A connection to a transport, logged on."""
        peer = RawPeer(self.ports[name])
        assert peer.log_on(name)["status"] == "success"
        return peer


@pytest.fixture(scope="module")
def filtered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filtered]:
    """One server with all kinds of filters."""
    directory = tmp_path_factory.mktemp("filtered")
    (directory / "shouting.py").write_text(CUSTOM)
    modules = """
    <Modules>
      <Module>
        <Name>stamper</Name>
        <Library>libamps_transport_filter_correlation_id_timestamper.so</Library>
      </Module>
      <Module><Name>shouting</Name><Library>./shouting.py</Library>
        <Options><Mark>?</Mark></Options></Module>
    </Modules>"""
    first = """<TransportFilter><Module>amps-topic-translator</Module>
      <Options><Topic>one:two</Topic></Options></TransportFilter>"""
    second = """<TransportFilter><Module>amps-topic-translator</Module>
      <Options><Topic>two:three</Topic></Options></TransportFilter>"""
    stamper = """<TransportFilter><Module>stamper</Module>
      <Options><Override>True</Override></Options></TransportFilter>"""
    shouting = """<TransportFilter><Module>shouting</Module>
      <Options><Mark>!</Mark></Options></TransportFilter>"""
    conflated = """<TransportFilter><Module>amps-conflated-topic-translator</Module>
      <Options><Topic>slow:fast:250ms</Topic></Options></TransportFilter>"""
    variants = {
        "conflated": conflated,
        "in-order": first + second,
        "in-reverse": second + first,
        "stamped": stamper,
        "shouting": "<TransportFilter><Module>shouting</Module></TransportFilter>",
        "shouting-loudly": first + shouting,
    }
    ports = {name: free_port() for name in variants}
    transports = "".join(
        transport(name, "tcp", f"<InetAddr>127.0.0.1:{ports[name]}</InetAddr>{elements}")
        for name, elements in variants.items()
    )
    with running_server(directory, transports=transports, elements=modules) as server:
        yield Filtered(server, ports)


@pytest.mark.parametrize(("name", "topic"), [("in-order", "three"), ("in-reverse", "two")])
def test_filters_run_in_the_order_of_the_configuration(
    filtered: Filtered, name: str, topic: str
) -> None:
    """Each filter sees what the one before it has left, also when a header comes again."""
    with filtered.server.log_on() as subscriber, filtered.log_on(name) as publisher:
        for each in ("one", "two", "three"):
            subscriber.subscribe(each, each)
        for _ in range(3):
            publisher.publish("one", name.encode())
            header, body = subscriber.receive()
            assert (header["t"], body) == (topic, name.encode())


def test_subscriptions_are_translated_too(filtered: Filtered) -> None:
    """Any command's topic is translated; deliveries carry the new name."""
    with filtered.server.log_on() as publisher, filtered.log_on("in-order") as subscriber:
        subscriber.subscribe("one", "1")
        publisher.publish("three", b"x")
        assert subscriber.receive()[0]["t"] == "three"


def test_a_translated_subscription_is_conflated(filtered: Filtered) -> None:
    """The subscription gets the topic and the interval of the configuration."""
    with filtered.server.log_on() as publisher, filtered.log_on("conflated") as subscriber:
        ack = subscriber.subscribe("slow", "1", o="conflation_key=[/id]")
        assert ack["status"] == "success"
        for number in range(10):
            publisher.publish("fast", b'{"id":1,"n":%d}' % number)
        assert subscriber.receive()[0]["t"] == "fast"
    assert filtered.server.logs("topic 'fast', options conflation_key=[/id],conflation=250ms")


def test_every_publish_is_stamped(filtered: Filtered) -> None:
    """The stamp is new for each message, although the publisher's header is not."""
    with filtered.server.log_on() as subscriber, filtered.log_on("stamped") as publisher:
        subscriber.subscribe("stamps", "1")
        stamps = []
        for _ in range(3):
            publisher.publish("stamps", b"x")
            stamps.append(subscriber.receive()[0]["x"])
    assert len(set(stamps)) == 3
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", one) for one in stamps)


def test_python_filters_change_drop_and_disconnect(filtered: Filtered) -> None:
    """A filter of the user's own gets each command, whatever was sent before."""
    with filtered.server.log_on() as subscriber, filtered.log_on("shouting") as publisher:
        subscriber.subscribe("custom", "1")
        for body in (b"a", b"a", b"drop", b"b"):
            publisher.publish("custom", body)
        assert [subscriber.receive()[1] for _ in range(3)] == [b"A?", b"A?", b"B?"]
        publisher.publish("custom", b"disconnect")
        assert publisher.is_disconnected()
        assert subscriber.hears_nothing()
    assert filtered.server.logs("client[shouting] disconnected. Reason: transport filter")


def test_a_filter_that_fails_costs_its_connection(filtered: Filtered) -> None:
    """The failure is in the log, and everybody else goes on."""
    with filtered.log_on("shouting-loudly") as publisher, filtered.server.log_on() as other:
        other.subscribe("two", "1")
        publisher.publish("one", b"x")
        assert other.receive()[1] == b"X!"
        publisher.publish("one", b"fail")
        assert publisher.is_disconnected()
        other.flush()
    assert filtered.server.logs("the filter failed")


def test_a_custom_filter_needs_its_members(tmp_path: Path) -> None:
    """What a library makes is checked when the server starts."""
    library = tmp_path / "half.py"
    library.write_text("def create_transport_filter(name, options): return object()")
    module = ModuleSpec("half", str(library), options(), HERE)
    with pytest.raises(FilterError, match="returned object, which lacks header_only, filter"):
        make_filters([ModuleUse("half", options(), HERE)], (module,))
    library.write_text(
        "from server.security.interceptors.base import FilterError\n"
        "def create_transport_filter(name, options): raise FilterError('no such option')"
    )
    with pytest.raises(FilterError, match=r"config\.xml:7: half: no such option"):
        make_filters([ModuleUse("half", options(), HERE)], (module,))


def test_the_example_of_the_documentation_works(tmp_path: Path) -> None:
    """The filter in docs/transports.md does what it says."""
    library = tmp_path / "keep_out.py"
    library.write_text(python_files("docs/transports.md")["keep_out.py"])
    module = ModuleSpec("keep-out", str(library), options(), HERE)
    (made,) = make_filters([ModuleUse("keep-out", options(Topic="secret"), HERE)], (module,))
    for topic, verdict in (("secret", Verdict.DROP), ("open", Verdict.PASS)):
        assert made.filter(IncomingCommand(Header(command="p", topic=topic), b"")) is verdict
    with pytest.raises(FilterError, match="expected at least one Topic"):
        make_filters([ModuleUse("keep-out", options(), HERE)], (module,))
