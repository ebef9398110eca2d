"""fix, nvfix, xml and soap: the same server, with headers as old clients write and read them."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.legacy import SOAP, with_length
from tests.support.legacy_server import BODIES, FILTERS, Legacy, legacy_transports
from tests.support.server import free_port, running_server


@pytest.fixture(scope="module")
def transports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Legacy]]:
    """One server with a transport for each protocol."""
    with legacy_transports(tmp_path_factory.mktemp("legacy")) as transports:
        yield transports


@pytest.fixture(params=FILTERS)
def legacy(request: pytest.FixtureRequest, transports: dict[str, Legacy]) -> Legacy:
    """Each of the transports."""
    return transports[request.param]


def test_a_logon_is_answered(legacy: Legacy) -> None:
    """The ack has the client's name and the version, and the message type may be said."""
    with legacy.connect() as peer:
        answer = legacy.named(
            peer.ask(
                legacy.fields(
                    Cmd="logon",
                    CmdId="7",
                    ClntName="old & new",
                    MsgTyp=legacy.message_type,
                    AckTyp="processed",
                )
            )
        )
    expected = {"Cmd": "ack", "CmdId": "7", "AckTyp": "processed", "Status": "success"}
    assert expected.items() <= answer.items()
    assert answer["ClntName"] == "old & new"
    assert answer["Version"]


def test_another_message_type_is_refused(legacy: Legacy) -> None:
    """The transport's message type is the only one."""
    with legacy.connect() as peer:
        answer = legacy.named(
            peer.ask(legacy.fields(Cmd="logon", CmdId="7", MsgTyp="json", AckTyp="processed"))
        )
    assert (answer["Status"], answer["Reason"]) == ("failure", "invalid message type")


def test_messages_are_filtered_and_delivered_verbatim(legacy: Legacy) -> None:
    """A subscriber gets what matches, with topic, length and subscription in the header."""
    match, other = BODIES[legacy.name]
    with legacy.log_on("subscriber") as subscriber, legacy.log_on("publisher") as publisher:
        ack = legacy.subscribe(subscriber, "orders", Fltr=FILTERS[legacy.name])
        assert (ack["Status"], ack["SubId"]) == ("success", "s1")
        for body in (match, other, match, b"", match):
            publisher.send(legacy.fields(Cmd="publish", Tpc="orders"), body)
        received = [legacy.receive(subscriber) for _ in range(3)]
        assert subscriber.hears_nothing()
    header = {"Cmd": "publish", "Tpc": "orders", "MsgLen": str(len(match)), "SubIds": "s1"}
    assert received == [(header, match)] * 3


def test_clients_of_the_amps_protocol_are_told_apart(legacy: Legacy) -> None:
    """They have come to the wrong port: the connection ends, and the log says why."""
    with legacy.connect() as peer:
        peer.send_content(b'{"c":"logon","a":"processed"}')
        with pytest.raises(EOFError):
            peer.receive()
    said = "a header of the protocol amps, expected FIX tags"
    assert legacy.server.logs(said if "fix" in legacy.name else "the envelope cannot be read")


def test_empty_fields_say_nothing(legacy: Legacy) -> None:
    """A field without a value is as good as none."""
    fields = [
        "Fltr",
        "Opts",
        "SubId",
        "QId",
        "BkMrk",
        "SndOOF",
        "DatOnly",
        "Seq",
        "CorrelationId",
        "UsrId",
    ]
    empty = legacy.fields(**dict.fromkeys(fields, ""))
    body, _ = BODIES[legacy.name]
    with legacy.log_on("empty") as peer:
        command = legacy.fields(Cmd="subscribe", CmdId="q", Tpc="empty", AckTyp="processed")
        assert legacy.named(peer.ask(command | empty))["Status"] == "success"
        peer.send(legacy.fields(Cmd="publish", Tpc="empty") | empty, body)
        header, received = legacy.receive(peer)
        assert (header["SubIds"], received) == ("q", body)
        assert "CorrelationId" not in header


def test_old_and_new_clients_understand_each_other(legacy: Legacy) -> None:
    """A topic is the same topic, whatever protocol its publishers and subscribers speak."""
    body, _ = BODIES[legacy.name]
    server = legacy.server
    with legacy.log_on("old") as old, server.log_on("new", legacy.message_type) as new:
        legacy.subscribe(old, "shared")
        new.subscribe("shared", "1")
        new.publish("shared", body, x="Y29ycg==")
        old.send(legacy.fields(Cmd="publish", Tpc="shared", CorrelationId="b2xk"), body)
        seen_by_new = [new.receive() for _ in range(2)]
        seen_by_old = [legacy.receive(old) for _ in range(2)]
    assert [(header["x"], content) for header, content in seen_by_new] == [
        ("Y29ycg==", body),
        ("b2xk", body),
    ]
    assert [(header["CorrelationId"], content) for header, content in seen_by_old] == [
        ("Y29ycg==", body),
        ("b2xk", body),
    ]


def test_acks_and_flush(legacy: Legacy) -> None:
    """Sequence numbers and command ids come back in the acks that were asked for."""
    body, _ = BODIES[legacy.name]
    with legacy.log_on() as peer:
        asked = legacy.fields(Cmd="publish", Tpc="acked", CmdId="p", Seq="42", AckTyp="persisted")
        ack = legacy.named(peer.ask(asked, body))
        assert (ack["AckTyp"], ack["Status"], ack["Seq"]) == ("persisted", "success", "42")
        done = legacy.named(peer.ask(legacy.fields(Cmd="flush", CmdId="f", AckTyp="completed")))
        assert (done["AckTyp"], done["CmdId"]) == ("completed", "f")


def test_refusals_say_why(legacy: Legacy) -> None:
    """A bad filter, a bad number and an option out of place fail, and the connection goes on."""
    with legacy.log_on() as peer:
        refused = legacy.subscribe(peer, "orders", Fltr="/a >")
        assert (refused["Status"], refused["Reason"]) == ("failure", "bad filter")
        asked = legacy.fields(Cmd="publish", CmdId="1", Tpc="t", Seq="many", AckTyp="processed")
        assert legacy.named(peer.ask(asked))["Reason"] == "bad header"
        refused = legacy.subscribe(peer, "orders", SndOOF="true")
        assert (refused["Status"], refused["Reason"]) == ("failure", "invalid option")
        assert legacy.subscribe(peer, "orders", SndOOF="false")["Status"] == "success"


def test_options_and_unsubscribe(legacy: Legacy) -> None:
    """Options are those of the amps protocol; a subscription can be replaced and ended."""
    body, _ = BODIES[legacy.name]
    with legacy.log_on() as peer:
        legacy.subscribe(peer, "before")
        assert legacy.subscribe(peer, "after", Opts="replace,timestamp")["Status"] == "success"
        for topic in ("before", "after"):
            peer.send(legacy.fields(Cmd="publish", Tpc=topic), body)
        header, _ = legacy.receive(peer)
        assert (header["Tpc"], header["TxmTm"][8]) == ("after", "T")
        peer.ask(legacy.fields(Cmd="unsubscribe", CmdId="3", SubId="s1", AckTyp="processed"))
        peer.send(legacy.fields(Cmd="publish", Tpc="after"), body)
        assert peer.hears_nothing()


def test_data_only_leaves_the_header_away(legacy: Legacy) -> None:
    """A subscription with DataOnly gets bodies and nothing else; acks have headers as before."""
    body, _ = BODIES[legacy.name]
    with legacy.log_on() as peer:
        assert legacy.subscribe(peer, "raw", DatOnly="true")["Status"] == "success"
        peer.send(legacy.fields(Cmd="publish", Tpc="raw"), body)
        assert peer.receive_content() == body
        legacy.subscribe(peer, "raw", SubId="s2", CmdId="3")
        peer.send(legacy.fields(Cmd="publish", Tpc="raw"), body)
        assert legacy.receive(peer)[0]["SubIds"] == "s1,s2"  # the other one needs the header
        legacy.subscribe(peer, "raw", Opts="replace")
        peer.ask(legacy.fields(Cmd="unsubscribe", CmdId="4", SubId="s2", AckTyp="processed"))
        peer.send(legacy.fields(Cmd="publish", Tpc="raw"), body)
        assert legacy.receive(peer)[0]["SubIds"] == "s1"


def test_data_only_needs_no_id(legacy: Legacy) -> None:
    """The subscription gets an id of its own, which the ack tells."""
    body, _ = BODIES[legacy.name]
    with legacy.log_on() as peer:
        asked = legacy.fields(Cmd="subscribe", Tpc="raw-2", DatOnly="true", AckTyp="processed")
        assert legacy.named(peer.ask(asked))["SubId"]
        peer.send(legacy.fields(Cmd="publish", Tpc="raw-2"), body)
        assert peer.receive_content() == body


def test_heartbeats(legacy: Legacy) -> None:
    """They are started with fields of their own or with options, and beat as fast as asked."""
    with legacy.log_on() as peer:
        started = legacy.named(
            peer.ask(
                legacy.fields(
                    Cmd="heartbeat", CmdId="h", Hrtbt="start", TmIntvl="1", AckTyp="processed"
                )
            )
        )
        assert started["Status"] == "success"
        assert legacy.receive(peer)[0]["Cmd"] == "heartbeat"
        peer.send(legacy.fields(Cmd="heartbeat", Hrtbt="beat"))
        stopped = legacy.named(
            peer.ask(legacy.fields(Cmd="heartbeat", CmdId="h", Hrtbt="stop", AckTyp="processed"))
        )
        assert stopped["Status"] == "success"


def test_a_silent_query(legacy: Legacy) -> None:
    """A query of a topic without records begins and ends a group."""
    with legacy.log_on() as peer:
        peer.send(legacy.fields(Cmd="sow_and_subscribe", CmdId="q", SubId="s1", Tpc="norecords"))
        groups = [legacy.receive(peer)[0] for _ in range(2)]
    assert groups == [
        {"Cmd": "group_begin", "QId": "q"},
        {"Cmd": "group_end", "QId": "q"},
    ]


@pytest.mark.parametrize("size", [0, 100_000, 5_000_000])
def test_bodies_of_any_size_pass(legacy: Legacy, size: int) -> None:
    """From the empty body to one that takes many reads."""
    with legacy.log_on() as peer:
        legacy.subscribe(peer, "sizes")
        peer.send(legacy.fields(Cmd="publish", Tpc="sizes"), b"z" * size)
        header, body = legacy.receive(peer)
    assert (len(body), header["MsgLen"]) == (size, str(size))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("fix", b"\x0120067=watcher\x01"),
        ("xml", b"<ClientName>watcher</ClientName>"),
        ("soap", b"<ClientName>watcher</ClientName>"),
        ("fix-custom", b"|20067=watcher|"),
    ],
)
def test_event_topics_are_served(transports: dict[str, Legacy], name: str, said: bytes) -> None:
    """What clients do reaches old clients in the format of their message type."""
    legacy = transports[name]
    with legacy.log_on("watcher") as watcher:
        watcher.send(legacy.fields(Cmd="subscribe", CmdId="1", Tpc="/AMPS/ClientStatus"))
        header, body = legacy.receive(watcher)
    assert header["Tpc"] == "/AMPS/ClientStatus"
    assert said in body


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00\xff\xfe",
        b'{"c":"publish","t":"x"}{}',
        b"<?xml version='1.0'?><!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>",
        b"20000=\xff\x01\x02",
    ],
)
def test_what_is_no_message_ends_the_connection_only(legacy: Legacy, content: bytes) -> None:
    """Others are served as before, and the log says what was wrong."""
    with legacy.log_on("offender") as offender, legacy.log_on("other") as other:
        offender.send_content(content)
        assert offender.is_disconnected()
        assert legacy.subscribe(other, "still")["Status"] == "success"
    assert legacy.server.logs("offender")


def test_an_oversized_message_ends_the_connection(legacy: Legacy) -> None:
    """The length is believed before anything else is read."""
    with legacy.log_on() as peer:
        peer.socket.sendall(b"\x0d\x00\x00\x00")
        assert peer.is_disconnected()


def test_a_preflight_may_come_first(legacy: Legacy) -> None:
    """Legacy clients may come through an HTTP proxy like others."""
    with legacy.connect() as peer:
        peer.socket.sendall(b"GET /amps/fix HTTP/1.1\r\nHost: h\r\nUpgrade: amps\r\n\r\n")
        answer = b""
        while not answer.endswith(b"\r\n\r\n"):
            answer += peer.socket.recv(4096)
        assert answer.startswith(b"HTTP/1.1 101 ")
        assert peer.ask(legacy.fields(Cmd="logon", CmdId="1", AckTyp="processed"))


def test_connections_may_be_compressed(legacy: Legacy) -> None:
    """A zlib stream in each direction, as with the amps protocol."""
    compress, decompress = zlib.compressobj(), zlib.decompressobj()
    with legacy.connect() as peer:
        logon = with_length(peer.format(legacy.fields(Cmd="logon", CmdId="9", AckTyp="processed")))
        peer.socket.sendall(compress.compress(logon) + compress.flush(zlib.Z_SYNC_FLUSH))
        answer = decompress.decompress(peer.socket.recv(65536))
        assert len(answer) > 4
        assert legacy.named(peer.read(answer[4:])[0])["CmdId"] == "9"


@pytest.mark.parametrize(("name", "before"), [("xml", False), ("soap", True)])
def test_namespaces_are_declared_when_asked_for(
    transports: dict[str, Legacy], name: str, before: bool
) -> None:
    """soap declares the namespace of its envelopes and xml does not, until UseNS says otherwise."""
    legacy = transports[name]
    with legacy.log_on() as peer:
        legacy.subscribe(peer, "ns")
        for fields, declared in (({}, before), ({"UseNS": str(not before).lower()}, not before)):
            peer.send({"Cmd": "publish", "Tpc": "ns"} | fields, b"<a/>")
            assert (SOAP.encode() in peer.receive_content()) is declared


def test_envelopes_of_other_shapes_are_read(transports: dict[str, Legacy]) -> None:
    """Prefixes, attributes, CDATA, comments and empty elements are XML like any other."""
    legacy = transports["xml"]
    with legacy.log_on() as peer:
        legacy.subscribe(peer, "shapes", Fltr="/a = 1")
        peer.send_content(
            b'\xef\xbb\xbf<Envelope xmlns="urn:x"><!-- hi --><Header note="a>b">'
            b"<Cmd><![CDATA[publish]]></Cmd><Tpc>sh&#x61;pes</Tpc><Other><Deep>x</Deep></Other>"
            b"<Fltr/></Header><Body a='<'>".replace(b"'<'", b"'&lt;>'")
            + b"<a>1</a></Body></Envelope>"
        )
        assert legacy.receive(peer)[1] == b"<a>1</a>"


def test_bodies_are_utf_8_inside(transports: dict[str, Legacy]) -> None:
    """An envelope in ISO-8859-1 is published in UTF-8, which everybody else reads."""
    legacy = transports["xml"]
    with legacy.log_on() as peer, legacy.server.log_on("new", "xml") as new:
        new.subscribe("names", "1")
        peer.send(legacy.fields(Cmd="publish", Tpc="names"), "<a>ü</a>".encode("latin-1"))
        assert new.receive()[1] == "<a>ü</a>".encode()
        legacy.subscribe(peer, "names")
        new.publish(
            "names", '<?xml version="1.0" encoding="ISO-8859-1"?><a>\xfc</a>'.encode("latin-1")
        )
        assert legacy.receive(peer)[1] == "<a>ü</a>".encode()


SAME_SEPARATORS = """
<MessageTypes><MessageType>
  <Name>own</Name><Module>fix</Module><FieldSeparator>2</FieldSeparator>
</MessageType></MessageTypes>
"""


@pytest.mark.parametrize(
    ("elements", "message_type", "said"),
    [
        ("", "", "MessageType: is missing but required with the protocol fix"),
        (
            SAME_SEPARATORS,
            "<MessageType>own</MessageType>",
            "message type own needs a HeaderSeparator other than its FieldSeparator",
        ),
    ],
)
def test_a_transport_needs_a_message_type_that_suits(
    tmp_path: Path, elements: str, message_type: str, said: str
) -> None:
    """Legacy clients cannot say which type they use, and headers have its separators."""
    element = (
        f"<Transport><Name>x</Name><Type>tcp</Type><InetAddr>127.0.0.1:{free_port()}</InetAddr>"
        f"<Protocol>fix</Protocol>{message_type}</Transport>"
    )
    with (
        pytest.raises(AssertionError, match=said),
        running_server(tmp_path, transports=element, elements=elements),
    ):
        pass
