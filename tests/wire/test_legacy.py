"""Headers of the legacy protocols become headers of the amps protocol, and the other way round."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amperage.wire.framing import frame
from amperage.wire.legacy.caller import LegacyCaller
from amperage.wire.legacy.dialect import Dialect
from amperage.wire.legacy.envelope import EnvelopeDialect
from amperage.wire.legacy.fields import FIELDS, as_amps
from amperage.wire.legacy.fix import FixDialect
from amperage.wire.legacy.peer import LegacyPeer
from tests.support.legacy import with_length
from tests.wire.test_framing import cut

FIX = FixDialect()
XML = EnvelopeDialect(namespaces=False)
DIALECTS: Mapping[str, Dialect] = {"fix": FIX, "xml": XML}

REFERENCE_TAGS = (
    "20000 cmd c; 20001 cmd_id cid; 20002 client_name client_name; 20003 user_id user_id;"
    "20004 timestamp ts; 20005 topic t; 20006 filter f; 20007 message_type mt; 20008 ack_type a;"
    "20009 sub_id sub_id; 20011 version version; 20012 expiration e; 20014 data_only data_only;"
    "20015 heartbeat heartbeat; 20016 timeout_interval timeout_interval; 20017 lease_period lp;"
    "20018 status status; 20019 query_id query_id; 20020 send_oof send_oof; 20022 use_ns use_ns;"
    "20023 batch_size bs; 20025 top_n top_n; 20029 send_empty send_empty; 20032 sow_keys sow_keys;"
    "20033 send_keys send_keys; 20035 correlation_id x; 20036 seq s; 20037 bookmark bm;"
    "20038 password pw; 20039 opts o; 20052 records_inserted records_inserted;"
    "20053 records_updated records_updated; 20054 records_deleted records_deleted;"
    "20055 records_returned records_returned; 20056 topic_matches topic_matches;"
    "20057 matches matches; 20058 msg_len l; 20059 sow_key k; 20060 gseq gseq; 20061 sids sids;"
    "20062 reason reason"
)
"""Tags, the reference's names of their fields, and the keys of these on the wire."""

TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12).filter(
    lambda text: text == text.strip() and not set(text) & {"\ufffe", "\uffff"}
)
HEADERS = st.dictionaries(st.sampled_from([field.key for field in FIELDS]), TEXTS, max_size=8)


def amps_frames(frames: bytes) -> list[tuple[dict[str, object], bytes]]:
    """Take frames of the amps protocol apart."""
    result = []
    while frames:
        (length,) = struct.unpack_from(">I", frames)
        content, frames = frames[4 : 4 + length], frames[4 + length :]
        header, end = json.JSONDecoder().raw_decode(content.decode("latin-1"))
        result.append((header, content[end:]))
    return result


def messages(stream: bytes) -> list[bytes]:
    """The messages of a stream, without their lengths."""
    result = []
    while stream:
        (length,) = struct.unpack_from(">I", stream)
        result.append(stream[4 : 4 + length])
        stream = stream[4 + length :]
    return result


def understood(dialect: Dialect, *contents: bytes) -> list[tuple[dict[str, str], bytes]]:
    """What a peer takes messages for."""
    peer = LegacyPeer(dialect)
    frames = peer.feed(b"".join(map(with_length, contents)))
    assert peer.error is None
    return [(json.loads(header), body) for header, body in frames]


def problem(dialect: Dialect, content: bytes) -> str:
    """What a peer says of a message that is none."""
    peer = LegacyPeer(dialect)
    assert peer.feed(with_length(content)) == []
    return str(peer.error)


def test_the_tags_are_those_of_the_reference() -> None:
    """Legacy Protocols Reference, FIX/NVFIX Message Header; names are unique either way."""
    rows = [row.split() for row in REFERENCE_TAGS.split(";")]
    assert [(field.tag, field.key) for field in FIELDS] == [(tag, key) for tag, _, key in rows]
    assert len({field.element for field in FIELDS}) == len(FIELDS)


@pytest.mark.parametrize("name", DIALECTS)
@given(fields=HEADERS, body=st.binary(max_size=40))
def test_what_is_written_is_read_back(name: str, fields: dict[str, str], body: bytes) -> None:
    """Any header and any body, markup and separators in them included."""
    dialect = DIALECTS[name]
    message = dialect.write(fields.items()) + dialect.embed(body) + dialect.tail
    opened = dialect.read(message)
    assert opened.fields == fields
    assert opened.body_start is not None
    assert dialect.body(message, opened.body_start) == body


@pytest.mark.parametrize("name", DIALECTS)
@given(
    sent=st.lists(st.tuples(TEXTS, st.binary(max_size=30)), max_size=5),
    cuts=st.lists(st.integers(0, 10_000), max_size=5),
)
def test_messages_survive_any_cutting(
    name: str, sent: list[tuple[str, bytes]], cuts: list[int]
) -> None:
    """Messages come out as they went in, however the stream is cut, also with equal headers."""
    dialect = DIALECTS[name]
    stream = b"".join(
        with_length(dialect.write([("c", "p"), ("t", topic)]) + body + dialect.tail)
        for topic, body in [*sent, *sent]
    )
    peer = LegacyPeer(dialect)
    frames = [one for piece in cut(stream, cuts) for one in peer.feed(piece)]
    assert peer.error is None
    assert not peer.has_partial_frame
    assert [(json.loads(header)["t"], body) for header, body in frames] == [*sent, *sent]


@pytest.mark.parametrize("name", DIALECTS)
@given(TEXTS, st.binary(max_size=30))
def test_frames_become_messages(name: str, topic: str, body: bytes) -> None:
    """Braces and quotes in a topic do not confuse, and what is remembered is what it was."""
    dialect = DIALECTS[name]
    sent = [
        frame(json.dumps({"c": "p", "t": topic + end, "l": len(body)}).encode(), body)
        for end in ("", '"}', '"}', "}", "")
    ]
    out = messages(LegacyPeer(dialect).encode(b"".join(sent)))
    opened = [dialect.read(message) for message in out]
    assert [one.fields["t"] for one in opened] == [topic + end for end in ("", '"}', '"}', "}", "")]
    for message, one in zip(out, opened, strict=True):
        assert (one.fields["c"], one.fields["l"]) == ("publish", str(len(body)))
        assert dialect.body(message, one.body_start or 0) == body


@pytest.mark.parametrize("name", DIALECTS)
@given(TEXTS, st.binary(max_size=30))
def test_what_a_client_says_is_what_a_server_hears(name: str, topic: str, body: bytes) -> None:
    """Commands and their bodies, numbers as texts, and braces in texts."""
    said = [{"c": "p", "t": topic + end, "s": number} for number, end in enumerate(("", '"}', "}"))]
    frames = b"".join(frame(json.dumps(header).encode(), body) for header in said)
    heard = LegacyPeer(DIALECTS[name]).feed(LegacyCaller(DIALECTS[name]).encode(frames))
    assert [(json.loads(header), content) for header, content in heard] == [
        (header | {"c": "publish", "s": str(header["s"])}, body) for header in said
    ]


def test_a_record_of_a_query_is_a_batch_of_one() -> None:
    """The amps protocol has a header for the batch, and one for each record in it."""
    caller = LegacyCaller(FIX)
    sent = b"20000=sow\x0120019=q\x0120005=t\x0120023=1\x0120059=7\x0120058=3\x01\x02a=1"
    ((header, content),) = caller.feed(with_length(sent))
    assert json.loads(header) == {"c": "sow", "query_id": "q", "t": "t", "bs": "1"}
    assert content == b'{"k":"7","l":"3"}a=1'


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"c": "p", "t": "x"}, {"c": "p", "t": "x"}),
        (
            {"c": "heartbeat", "heartbeat": "start", "timeout_interval": "5"},
            {"c": "heartbeat", "o": "start,5"},
        ),
        ({"c": "heartbeat", "heartbeat": "stop"}, {"c": "heartbeat", "o": "stop"}),
        ({"c": "heartbeat", "heartbeat": "beat"}, {"c": "heartbeat", "o": "beat"}),
        ({"c": "heartbeat", "o": "start,5"}, {"c": "heartbeat", "o": "start,5"}),
        ({"c": "logon", "heartbeat": "start", "timeout_interval": "5"}, {"c": "logon"}),
    ],
)
def test_fields_that_stand_for_options(fields: dict[str, str], expected: dict[str, str]) -> None:
    """Fields that the amps protocol has options for become these options."""
    assert as_amps(fields) == expected


@pytest.mark.parametrize(
    ("content", "header", "body"),
    [
        (b"20000=p\x0120005=t\x01\x02a=1\x01\x02", {"c": "p", "t": "t"}, b"a=1\x01\x02"),
        (b"20000=p\x0120005=t\x02x", {"c": "p", "t": "t"}, b"x"),
        (b"20000=flush", {"c": "flush"}, b""),
        (b"20000=p\x0120006=\x0120005=a=b\x01x\x0199=9\x01\x02", {"c": "p", "t": "a=b"}, b""),
        (b"\x02body", {}, b"body"),
    ],
)
def test_shapes_of_fix_headers(content: bytes, header: dict[str, str], body: bytes) -> None:
    """The last field may lack its separator; unknown tags and empty values are passed over."""
    assert understood(FIX, content) == [(header, body)]


def envelope(header: str, body: str = "<B>1</B>", prefix: str = "") -> bytes:
    """An envelope."""
    return (
        f"<{prefix}Envelope><{prefix}Header>{header}</{prefix}Header>"
        f"<{prefix}Body>{body}</{prefix}Body></{prefix}Envelope>"
    ).encode()


PUBLISH = "<Cmd>publish</Cmd>"


@pytest.mark.parametrize(
    ("content", "header", "body"),
    [
        (envelope(PUBLISH), {"c": "publish"}, b"<B>1</B>"),
        (envelope(PUBLISH, prefix="SOAP-ENV:"), {"c": "publish"}, b"<B>1</B>"),
        (b"\n <?xml version='1.0'?>"[2:] + envelope(PUBLISH), {"c": "publish"}, b"<B>1</B>"),
        (envelope("<Fltr><![CDATA[/a < '<Body>']]></Fltr>"), {"f": "/a < '<Body>'"}, b"<B>1</B>"),
        (envelope("<Tpc> a<!-- b -->&#99;\n</Tpc><Tpcs>x</Tpcs>"), {"t": "ac"}, b"<B>1</B>"),
        (envelope("<Tpc>a<Tpc>b</Tpc>c</Tpc>"), {"t": "ac"}, b"<B>1</B>"),
        (envelope("", body="no & markup < at </Body> all"), {}, b"no & markup < at </Body> all"),
        (b"<Envelope><Header><Cmd>a</Cmd></Header></Envelope>", {"c": "a"}, b""),
        (b"<Envelope><Header><Cmd>a</Cmd></Header><Body/></Envelope>", {"c": "a"}, b""),
        (b"<Envelope><Body>x</Body></Envelope>", {}, b"x"),
        (b"<Envelope><Body a='>'\n>x</Body\n></Envelope >\n", {}, b"x"),
    ],
)
def test_shapes_of_envelopes(content: bytes, header: dict[str, str], body: bytes) -> None:
    """XML in all its ways up to the body, and a body of any bytes."""
    assert understood(XML, content, content) == [(header, body)] * 2


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "no element found"),
        (b"<a/>", "the outermost element is no Envelope"),
        (b"<Envelope><Header/><Tail/></Envelope>", "something else than a Header or a Body"),
        (b"<Envelope><Header><Cmd>x</Envelope>", "mismatched tag"),
        (b"<Envelope><Header>", "no element found"),
        (b"<Envelope><Body>", "does not end"),
        (b"<Envelope><Body></Envelope>", "does not end"),
        (b"<Envelope><Body></Body>", "does not end"),
        (b"<Envelope><Body></Body></Envelope>x", "does not end"),
        (b"<!DOCTYPE Envelope><Envelope/>", "document type"),
        (b'<?xml version="1.0" encoding="utf-16"?><Envelope/>', "expected one of UTF-8"),
        (b"<Envelope><Header><Cmd>\xff</Cmd></Header></Envelope>", "not well-formed"),
        ("<Envelope><Body>x</Body></Envelope>".encode("utf-16"), "in utf-16"),
        ("<Envelope><Body>x</Body></Envelope>".encode("utf-16-le"), "in utf-16"),
        ("<Envelope><Body>x</Body></Envelope>".encode("utf-16-be"), "in utf-16"),
        ("<Envelope><Body>x</Body></Envelope>".encode("utf-32-be"), "in utf-16"),
    ],
)
def test_what_is_no_envelope(content: bytes, said: str) -> None:
    """The error says what was expected; nothing behind it is read."""
    assert said in problem(XML, content)


def test_long_headers_are_read_in_time_that_follows_their_length() -> None:
    """A header of megabytes, in one text or in many fields, is a header."""
    long = envelope(f"<Fltr>{'x' * 3_000_000}</Fltr>{'<a/>' * 300_000}")
    (read,) = understood(XML, long)
    assert read == ({"f": "x" * 3_000_000}, b"<B>1</B>")


def test_values_that_a_format_cannot_express() -> None:
    """Separators become blanks in FIX, control characters U+FFFD in XML."""
    fields = [("reason", "a\x01b\x02c"), ("detail", "not among the fields")]
    assert FIX.write(fields) == b"20062=a b c\x01\x02"
    assert "<Reason>a\ufffdb\ufffdc</Reason></SOAP" in XML.write(fields).decode()


@pytest.mark.parametrize(
    ("body", "embedded"),
    [
        (b"<a/>", b"<a/>"),
        (b'<?xml version="1.0"?><a/>', b"<a/>"),
        (
            b'\xef\xbb\xbf \n<?xml version="1.0" encoding="utf-8" standalone="yes"?>\n<a/>',
            b"\n<a/>",
        ),
        (b"<?xml version='1.0' encoding='ISO-8859-1'?><a>\xfc</a>", "<a>ü</a>".encode()),
        (b"<?xml version='1.0' encoding='klingon'?><a>\xfc</a>", b"<a>\xfc</a>"),
        (b"<?xml-stylesheet href='x'?><a/>", b"<?xml-stylesheet href='x'?><a/>"),
        (b"<?xml never ends", b"<?xml never ends"),
        (b" " * 100_000, b" " * 100_000),
    ],
)
def test_declarations_of_bodies_stay_out_of_envelopes(body: bytes, embedded: bytes) -> None:
    """They could not stand there, and the length in the header is that of what is sent."""
    sent = frame(b'{"c":"p","t":"x","l":%d}' % len(body), body)
    (message,) = messages(LegacyPeer(XML).encode(sent))
    assert b"<SOAP-ENV:Body>%s</SOAP-ENV:Body>" % embedded in message
    assert b"<MsgLen>%d</MsgLen>" % len(embedded) in message


def test_a_batch_is_sent_record_by_record() -> None:
    """Records of a query come one to a message, each with its key and length."""
    records = [(b"k1", b"<a/>"), (b"k}2", b""), (b"k3", b"{}")]
    batch = b"".join(b'{"k":"%s","l":%d}%s' % (k, len(body), body) for k, body in records)
    sent = frame(b'{"c":"sow","query_id":"q","t":"x","bs":3}', batch)
    out = messages(LegacyPeer(FIX).encode(sent))
    assert out == [
        b"20000=sow\x0120019=q\x0120005=x\x0120023=1\x0120059=%s\x0120058=%d\x01\x02%s"
        % (k, len(body), body)
        for k, body in records
    ]


def test_messages_up_to_the_limit_pass() -> None:
    """One more byte is an error before the message has come."""
    peer = LegacyPeer(FIX, limit=8)
    assert peer.feed(with_length(b"20000=ab")) == [(b'{"c":"ab"}', b"")]
    assert peer.feed(b"\x00\x00\x00\x09") == []
    assert "over the limit of 8" in str(peer.error)
    assert peer.feed(with_length(b"20000=ab")) == []
