"""The client's core: what it writes for a command, and what it makes of the answers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amperage.client.errors import (
    AuthenticationError,
    BadFilterError,
    BadRegexTopicError,
    ClientError,
    CommandError,
    ConnectionLostError,
    DuplicateMessageError,
    InvalidTopicError,
    LogonError,
    NameInUseError,
    NotEntitledError,
    ProtocolError,
    SubscriptionExistsError,
)
from amperage.client.protocol import ClientProtocol
from tests.client.wire_in import FEEDS, Feed, ack, bodies, inbox_of, sent
from tests.support.raw import frame


@pytest.fixture
def protocol() -> ClientProtocol:
    return ClientProtocol()


@pytest.fixture(params=FEEDS, ids=lambda feed: str(feed.__name__))
def feed(request: pytest.FixtureRequest) -> Feed:
    chosen: Feed = request.param
    return chosen


# What goes out


def test_a_logon_names_client_user_password_and_message_type(protocol: ClientProtocol) -> None:
    protocol.logon("pricing", "ann", "secret", "json", options="ack_conflation=100ms")
    [(header, body)] = sent(protocol)
    assert body == b""
    assert {key: value for key, value in header.items() if key != "version"} == {
        "c": "logon",
        "cid": "1",
        "client_name": "pricing",
        "user_id": "ann",
        "pw": "secret",
        "mt": "json",
        "a": "processed",
        "o": "ack_conflation=100ms",
    }


def test_a_plain_publish_carries_topic_and_body_and_nothing_else(protocol: ClientProtocol) -> None:
    protocol.publish("orders", b'{"id":1}')
    protocol.publish("orders", b"", delta=True)
    assert sent(protocol) == [
        ({"c": "p", "t": "orders"}, b'{"id":1}'),
        ({"c": "delta_publish", "t": "orders"}, b""),
    ]


def test_a_publish_sends_its_options(protocol: ClientProtocol) -> None:
    protocol.publish("t", b"x", correlation_id="abc", expiration=5, sow_key="k", sequence=7)
    [(header, _)] = sent(protocol)
    assert header == {"c": "p", "t": "t", "x": "abc", "e": 5, "k": "k", "s": 7}


def test_publishing_many_messages_writes_them_in_order(protocol: ClientProtocol) -> None:
    protocol.publish_all("t", [b"1", b"", b"3"])
    assert sent(protocol) == [({"c": "p", "t": "t"}, body) for body in (b"1", b"", b"3")]


def test_messages_as_columns_have_the_headers_of_single_ones(protocol: ClientProtocol) -> None:
    topics, ids, lifetimes = ["a", "b", "a"], ["x", None, 'quoted "'], [None, 5, 0]
    bodies_ = [b"1", b"2", b""]
    protocol.publish_columns(
        topics, bodies_, {"correlation_id": ids, "expiration": lifetimes}, delta=True
    )
    together = sent(protocol)
    for topic, body, one, seconds in zip(topics, bodies_, ids, lifetimes, strict=True):
        protocol.publish(topic, body, delta=True, correlation_id=one, expiration=seconds)
    assert together == sent(protocol)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"sow_key": ["k", 5]}, "sow_key: expected str"),
        ({"expiration": [1, -1]}, "expiration: expected 0 to"),
        ({"correlation_id": ["x" * 2**20, None]}, "the header of a publish has more than"),
    ],
)
def test_of_messages_as_columns_all_are_sent_or_none(
    protocol: ClientProtocol, fields: dict[str, list[str | int | None]], problem: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=problem):
        protocol.publish_columns(["t", "t"], [b"1", b"2"], fields)
    assert sent(protocol) == []


def test_more_topics_than_are_kept_prepared_are_published_all_the_same(
    protocol: ClientProtocol,
) -> None:
    for number in range(600):
        protocol.publish(f"topic-{number}", b"")
    assert [header["t"] for header, _ in sent(protocol)] == [f"topic-{n}" for n in range(600)]


def test_a_subscription_makes_up_an_id_and_asks_for_the_acks_wanted(
    protocol: ClientProtocol,
) -> None:
    protocol.subscribe("orders", filter="/qty > 3", bookmark="0", acks=["completed"])
    [(header, _)] = sent(protocol)
    assert header == {
        "c": "subscribe",
        "cid": "1",
        "sub_id": "1",
        "t": "orders",
        "f": "/qty > 3",
        "bm": "0",
        "a": "processed,completed",
    }


def test_a_query_asks_for_batches_and_carries_its_options(protocol: ClientProtocol) -> None:
    protocol.sow("orders", order_by="/px", top_n=5, sow_keys=["1", "2"])
    protocol.sow_and_subscribe("orders", delta=True, sub_id="mine", batch_size=100)
    first, second = (header for header, _ in sent(protocol))
    assert first == {
        "c": "sow",
        "cid": "1",
        "query_id": "1",
        "t": "orders",
        "orderby": "/px",
        "bs": 10,
        "top_n": 5,
        "sow_keys": "1,2",
        "a": "processed",
    }
    assert second == {
        "c": "sow_and_delta_subscribe",
        "cid": "2",
        "sub_id": "mine",
        "query_id": "mine",
        "t": "orders",
        "bs": 100,
        "a": "processed",
    }


def test_a_made_up_id_is_never_one_that_the_caller_uses(protocol: ClientProtocol) -> None:
    protocol.subscribe("a", sub_id="2")
    other = protocol.subscribe("b")
    assert inbox_of(other).id == "3"


@pytest.mark.parametrize("options", [{}, {"filter": "1=1", "body": b"x"}, {"filter": None}])
def test_a_deletion_says_exactly_one_way_what_to_delete(
    protocol: ClientProtocol, options: dict[str, object]
) -> None:
    with pytest.raises(ValueError, match="exactly one"):
        protocol.sow_delete("t", **options)  # type: ignore[arg-type]  # what is tested


def test_messages_of_a_queue_are_acknowledged_by_bookmark(protocol: ClientProtocol) -> None:
    protocol.acknowledge("q", ["1|2|", "1|3|"])
    protocol.acknowledge("q", ["1|4|"], "cancel")
    assert [header for header, _ in sent(protocol)] == [
        {"c": "sow_delete", "t": "q", "bm": "1|2|,1|3|"},
        {"c": "sow_delete", "t": "q", "bm": "1|4|", "o": "cancel"},
    ]


# Answers


def test_a_request_is_done_with_the_ack_of_its_command_id(
    protocol: ClientProtocol, feed: Feed
) -> None:
    first, second = protocol.flush(), protocol.flush()
    acks = ack(first, "completed") + ack(second, "completed") + ack(second, "persisted")
    feed(protocol, acks)
    assert (first.is_done, second.is_done, protocol.has_waiting_requests) == (False, True, True)


def test_a_deletion_is_answered_by_its_statistics(protocol: ClientProtocol, feed: Feed) -> None:
    request = protocol.sow_delete("t", filter="1=1")
    feed(protocol, ack(request) + ack(request, "stats", records_deleted=3))
    assert request.is_done
    assert request.acks["stats"].records_deleted == 3


def test_a_deletion_with_a_number_is_persisted_with_the_numbers_above_it(
    protocol: ClientProtocol, feed: Feed
) -> None:
    first = protocol.sow_delete("t", sow_keys=["1"], sequence=8, persisted=True)
    second = protocol.sow_delete("t", body=b"x", sequence=9)
    third = protocol.sow_delete("t", body=b"y", sequence=10, persisted=True)
    assert [(header["s"], header["a"]) for header, _ in sent(protocol)] == [
        (8, "processed,stats,persisted"),
        (9, "processed,stats"),
        (10, "processed,stats,persisted"),
    ]
    acks = b"".join(ack(request) + ack(request, "stats") for request in (first, second, third))
    feed(protocol, acks + frame({"c": "ack", "a": "persisted", "s": 9, "status": "success"}))
    assert (first.is_done, second.is_done, third.is_done) == (True, True, False)
    assert first.error is None


REFUSALS = [
    ("auth failure", AuthenticationError),
    ("bad filter", BadFilterError),
    ("bad regex topic", BadRegexTopicError),
    ("duplicate", DuplicateMessageError),
    ("invalid topic", InvalidTopicError),
    ("name in use", NameInUseError),
    ("not entitled", NotEntitledError),
    ("subscription already exists", SubscriptionExistsError),
    ("some new reason", CommandError),
    (None, CommandError),
]


@pytest.mark.parametrize(("reason", "kind"), REFUSALS)
def test_a_refusal_has_the_type_of_its_reason(
    protocol: ClientProtocol, feed: Feed, reason: str | None, kind: type[CommandError]
) -> None:
    request = protocol.subscribe("t")
    keys = {"reason": reason, "detail": "why"}
    feed(protocol, ack(request, **{k: v for k, v in keys.items() if v}, status="failure"))
    assert request.is_done
    assert type(request.error) is kind
    assert request.error.command == "subscribe"
    assert request.error.reason == reason or reason is None
    assert request.error.detail == "why"
    assert inbox_of(request).is_ended


def test_a_refused_logon_is_a_logon_error_whatever_the_reason(protocol: ClientProtocol) -> None:
    request = protocol.logon("c", None, None, None)
    protocol.receive(ack(request, status="failure", reason="not entitled"))
    assert isinstance(request.error, LogonError)


def test_conflated_acks_answer_every_publish_up_to_their_number(
    protocol: ClientProtocol, feed: Feed
) -> None:
    requests = [
        protocol.confirmed_publish("t", b"", "persisted", sequence=number) for number in range(1, 5)
    ]
    conflated = {"c": "ack", "a": "persisted"}
    feed(
        protocol,
        frame(conflated | {"s": 2, "status": "success"})
        + frame(conflated | {"s": 3, "status": "failure", "reason": "not entitled"}),
    )
    assert [request.is_done for request in requests] == [True, True, True, False]
    assert [type(request.error) for request in requests[:3]] == [
        type(None),
        type(None),
        NotEntitledError,
    ]


# Messages


def test_messages_go_to_the_subscriptions_that_they_name(
    protocol: ClientProtocol, feed: Feed
) -> None:
    first, second = protocol.subscribe("a"), protocol.subscribe("b")
    feed(
        protocol,
        frame({"c": "p", "t": "a", "sids": "1"}, b"one")
        + frame({"c": "publish", "t": "a", "sids": "1,2"}, b"both")
        + frame({"c": "p", "t": "b", "sub_id": "2"}, b"{}")
        + frame({"c": "p", "t": "x", "sids": "unknown"}, b"nobody's")
        + frame({"c": "oof", "t": "b", "sids": "2", "reason": "deleted"}, b"gone"),
    )
    assert bodies(first) == [b"one", b"both"]
    assert bodies(second) == [b"both", b"{}", b"gone"]
    assert {message.command for message in inbox_of(first).messages} == {"publish"}
    assert inbox_of(second).messages[-1].header.reason == "deleted"


def test_a_header_with_braces_in_a_string_is_read_as_it_is(
    protocol: ClientProtocol, feed: Feed
) -> None:
    request = protocol.subscribe("t")
    feed(protocol, frame({"c": "p", "x": 5, "t": "a}{b", "sids": "1"}, b"{}"))
    [message] = inbox_of(request).messages
    assert (message.topic, message.body) == ("a}{b", b"{}")
    assert message.header.correlation_id == "5"


def records(*texts: bytes) -> bytes:
    return b"".join(
        b'{"k":"%d","l":%d}%b' % (number, len(text), text) for number, text in enumerate(texts)
    )


def test_a_query_hands_out_single_records_and_ends_with_its_group(
    protocol: ClientProtocol, feed: Feed
) -> None:
    request = protocol.sow("t")
    batch = {"c": "sow", "query_id": "1", "t": "t"}
    feed(
        protocol,
        ack(request)
        + frame({"c": "group_begin", "query_id": "1"})
        + frame(
            {"c": "sow", "query_id": "1", "t": "t", "bs": 3, "ts": "now"},
            records(b"{}", b"", b"}{"),
        )
        + frame(batch | {"bs": 1}, records(b"last"))
        + frame({"c": "group_end", "query_id": "1"}),
    )
    assert request.is_done
    assert inbox_of(request).is_ended
    found = inbox_of(request).messages
    assert [(it.command, it.topic, it.sow_key, it.body) for it in found] == [
        ("sow", "t", "0", b"{}"),
        ("sow", "t", "1", b""),
        ("sow", "t", "2", b"}{"),
        ("sow", "t", "0", b"last"),
    ]
    assert [it.header.timestamp for it in found] == ["now"] * 3 + [None]


def test_a_query_with_statistics_ends_when_they_have_come(protocol: ClientProtocol) -> None:
    request = protocol.sow("t", acks=["stats"])
    protocol.receive(ack(request) + frame({"c": "group_end", "query_id": "1"}))
    assert not inbox_of(request).is_ended
    protocol.receive(ack(request, "stats", matches=0))
    [statistics] = inbox_of(request).messages
    assert (statistics.command, statistics.header.acks) == ("ack", "stats")
    assert inbox_of(request).is_ended


def test_a_query_that_is_refused_after_it_began_ends_its_stream_with_the_error(
    protocol: ClientProtocol,
) -> None:
    request = protocol.sow("t", acks=["completed"])
    protocol.receive(ack(request))
    protocol.receive(ack(request, "completed", status="failure", reason="not entitled"))
    assert isinstance(inbox_of(request).error, NotEntitledError)


def test_a_query_with_a_subscription_marks_its_end_and_goes_on(
    protocol: ClientProtocol, feed: Feed
) -> None:
    request = protocol.sow_and_subscribe("t", sub_id="mine")
    feed(
        protocol,
        ack(request)
        + frame({"c": "group_begin", "query_id": "mine"})
        + frame({"c": "sow", "query_id": "mine", "t": "t", "bs": 1}, records(b"r"))
        + frame({"c": "group_end", "query_id": "mine"})
        + frame({"c": "p", "t": "t", "sids": "mine"}, b"m"),
    )
    commands = [message.command for message in inbox_of(request).messages]
    assert commands == ["group_begin", "sow", "group_end", "publish"]
    assert not inbox_of(request).is_ended


def test_acks_that_the_caller_asked_for_stand_between_the_messages(
    protocol: ClientProtocol,
) -> None:
    request = protocol.subscribe("t", bookmark="0", acks=["completed", "persisted"])
    message = frame({"c": "p", "t": "t", "sids": "1"}, b"")
    protocol.receive(ack(request) + message + ack(request, "completed") + message)
    protocol.receive(ack(request, "persisted", bm="1|5|") + ack(request, "persisted", bm="1|6|"))
    commands = [(it.command, it.bookmark) for it in inbox_of(request).messages]
    assert commands == [
        ("publish", None),
        ("ack", None),
        ("publish", None),
        ("ack", "1|5|"),
        ("ack", "1|6|"),
    ]


def test_replacing_a_subscription_keeps_its_stream(protocol: ClientProtocol) -> None:
    first = protocol.subscribe("t", sub_id="s")
    second = protocol.subscribe("t", sub_id="s", filter="/a = 1", options="replace")
    assert first.inbox is second.inbox
    protocol.receive(ack(second, status="failure", reason="bad filter"))
    assert isinstance(second.error, BadFilterError)
    protocol.receive(frame({"c": "p", "t": "t", "sids": "s"}, b"still here"))
    assert bodies(first) == [b"still here"]


def test_an_ended_subscription_hands_out_what_had_come(protocol: ClientProtocol) -> None:
    request = protocol.subscribe("t")
    message = frame({"c": "p", "t": "t", "sids": "1"}, b"m")
    protocol.receive(ack(request) + message)
    protocol.unsubscribe("1")
    protocol.receive(message)
    assert inbox_of(request).is_ended
    assert bodies(request) == [b"m"]
    assert sent(protocol)[-1][0]["sub_id"] == "1"


def test_a_subscription_that_the_server_ends_hands_out_the_reason_after_its_messages(
    protocol: ClientProtocol, feed: Feed
) -> None:
    request, other = protocol.subscribe("t"), protocol.subscribe("u")
    ended = {"c": "ack", "a": "processed", "status": "failure", "sub_id": "1"}
    reason = {"reason": "subscription ended", "detail": "queue t has been removed"}
    message = frame({"c": "p", "t": "t", "sids": "1"}, b"m")
    feed(protocol, ack(request) + ack(other) + message + frame(ended | reason) + message)
    assert bodies(request) == [b"m"]
    assert "subscription ended" in str(inbox_of(request).error)
    assert not inbox_of(other).is_ended


def test_unsubscribing_from_all_ends_every_stream(protocol: ClientProtocol) -> None:
    requests = [protocol.subscribe("a"), protocol.sow("b")]
    protocol.unsubscribe("all")
    assert all(inbox_of(request).is_ended for request in requests)


def test_heartbeats_are_answered(protocol: ClientProtocol, feed: Feed) -> None:
    request = protocol.heartbeat(5)
    [(header, _)] = sent(protocol)
    assert (header["c"], header["o"]) == ("heartbeat", "start,5")
    feed(protocol, ack(request) + frame({"c": "heartbeat"}))
    assert request.is_done
    assert sent(protocol) == [({"c": "heartbeat", "o": "beat"}, b"")]


def test_what_nobody_knows_is_passed_over(protocol: ClientProtocol, feed: Feed) -> None:
    feed(
        protocol,
        frame({"c": "ack", "cid": "99", "a": "processed", "status": "success"})
        + frame({"c": "ack", "a": "persisted", "status": "success"})
        + frame({"c": "new_command", "new_key": True})
        + frame({"c": "group_end", "query_id": "99"}),
    )
    assert not protocol.has_waiting_requests


# Endings


def test_a_lost_connection_is_told_to_whoever_waits(protocol: ClientProtocol) -> None:
    pending, stream = protocol.flush(), protocol.subscribe("t")
    lost = ConnectionLostError("gone")
    protocol.close(lost)
    assert pending.error is lost
    assert inbox_of(stream).error is lost
    with pytest.raises(ConnectionLostError, match="gone"):
        protocol.publish("t", b"")


def test_a_closed_client_ends_its_streams_without_an_error(protocol: ClientProtocol) -> None:
    stream = protocol.subscribe("t")
    protocol.close()
    assert (inbox_of(stream).is_ended, inbox_of(stream).error) == (True, None)
    assert isinstance(stream.error, ConnectionLostError)


BROKEN = [
    b"\x00\x00\x00\x04nope",
    b"\xff\xff\xff\xff{}",
    frame({"c": "ack", "cid": {"nested": 1}}),
    frame({"c": "sow", "query_id": "1"}, b"no header"),
    frame({"c": "sow", "query_id": "1"}, b'{"k":"1","l":50}short'),
    frame({"c": "sow", "query_id": "1"}, b'{"k":"1","l":-1}'),
    frame({"c": "sow", "query_id": "1"}, b'{"k":"1","l":"many"}'),
]


@pytest.mark.parametrize("data", BROKEN)
def test_what_is_no_amps_protocol_ends_the_connection(
    protocol: ClientProtocol, data: bytes
) -> None:
    request = protocol.sow("t")
    with pytest.raises(ProtocolError):
        protocol.receive(data)
    assert isinstance(request.error, ProtocolError)


def test_a_single_record_may_do_without_its_length(protocol: ClientProtocol) -> None:
    request = protocol.sow("t")
    protocol.receive(frame({"c": "sow", "query_id": "1"}, b'{"k":"a}b"}all of it'))
    [record] = inbox_of(request).messages
    assert (record.sow_key, record.body) == ("a}b", b"all of it")


@given(st.lists(st.binary(max_size=40), max_size=12))
def test_a_batch_gives_back_the_records_that_were_put_in(texts: list[bytes]) -> None:
    protocol = ClientProtocol()
    request = protocol.sow("t")
    protocol.receive(frame({"c": "sow", "query_id": "1", "bs": len(texts)}, records(*texts)))
    assert bodies(request) == texts


HEADERS = st.dictionaries(
    st.sampled_from(["c", "cid", "a", "s", "sids", "query_id", "status", "k", "l", "bs", "t"]),
    st.one_of(
        st.sampled_from(["ack", "p", "sow", "oof", "group_end", "heartbeat", "1", "success"]),
        st.integers(-3, 3),
        st.booleans(),
        st.text(max_size=4),
    ),
)


@given(
    st.lists(st.one_of(st.binary(max_size=60), st.builds(frame, HEADERS, st.binary(max_size=30))))
)
def test_whatever_a_server_says_is_read_or_refused(pieces: list[bytes]) -> None:
    protocol = ClientProtocol()
    requests = [protocol.sow("t"), protocol.subscribe("t"), protocol.flush()]
    try:
        for piece in pieces:
            protocol.receive(piece)
    except ProtocolError:
        assert all(request.is_done for request in requests)
    else:
        assert all(isinstance(it.error, ClientError | None) for it in requests)
