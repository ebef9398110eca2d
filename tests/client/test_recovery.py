"""The core that outlives connections: nothing is lost or comes twice, wherever one is cut."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amperage.client.bookmarks import MOST_RECENT, BookmarkStore
from amperage.client.errors import ConnectionLostError, GaveUpError, NotEntitledError
from amperage.client.message import Message
from amperage.client.pending_requests import PendingRequest, StreamInbox
from amperage.client.publish_store import PublishStore
from amperage.client.recovery import RecoveringProtocol
from amperage.wire.header import Header
from tests.client.model_server import ModelServer
from tests.client.wire_in import ack, bodies, inbox_of, make, online, sent
from tests.support.chances import examples
from tests.support.raw import frame

LOST = ConnectionLostError("cut")


def lose(protocol: RecoveringProtocol) -> None:
    protocol.close(LOST)


def sent_again(protocol: RecoveringProtocol, **logon: Any) -> list[dict[str, Any]]:
    """Lose the connection, begin a session on another, and see what is sent."""
    lose(protocol)
    protocol.begin_session(Header(command="ack", **logon))
    return [header for header, _ in sent(protocol)]


def delivery(sub_id: str, bookmark: str, body: bytes = b"") -> bytes:
    return frame({"c": "p", "t": "t", "sids": sub_id, "bm": bookmark}, body)


# Subscriptions


def test_a_subscription_is_placed_again_with_id_filter_and_options() -> None:
    protocol = online()
    request = protocol.subscribe("t", filter="/a = 1", options="oof", sub_id="mine", delta=True)
    protocol.receive(ack(request))
    [before] = [header for header, _ in sent(protocol)]
    assert sent_again(protocol) == [before]
    assert before["sub_id"] == "mine"
    protocol.receive(frame({"c": "p", "t": "t", "sids": "mine"}, b"again"))
    assert bodies(request) == [b"again"]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            [{"filter": "/a = 2", "options": "replace,conflation=1s"}],
            {"f": "/a = 2", "o": "conflation=1s"},
        ),
        ([{"options": "replace"}], {}),
        ([{"options": "pause"}], {"f": "/a = 1", "o": "select=[-/,+/a],pause"}),
        ([{"options": "pause"}, {"options": "resume"}], {"f": "/a = 1", "o": "select=[-/,+/a]"}),
    ],
)
def test_a_changed_subscription_is_placed_again_as_it_was_last(
    changes: list[dict[str, Any]], expected: dict[str, str]
) -> None:
    protocol = online()
    options = "select=[-/,+/a]"
    first = protocol.subscribe("t", sub_id="s", filter="/a = 1", options=options)
    protocol.receive(ack(first))
    for change in changes:
        protocol.receive(ack(protocol.subscribe("t", sub_id="s", **change)))
    protocol.output.clear()
    [again] = sent_again(protocol)
    assert {key: again[key] for key in again.keys() & {"f", "o"}} == expected


def test_a_refused_change_is_not_repeated() -> None:
    protocol = online()
    protocol.receive(ack(protocol.subscribe("t", sub_id="s", filter="/a = 1")))
    change = protocol.subscribe("t", sub_id="s", filter="/a =", options="replace")
    protocol.receive(ack(change, status="failure", reason="bad filter"))
    [again] = sent_again(protocol)
    assert again["f"] == "/a = 1"


def test_several_subscriptions_are_resumed_by_one_command() -> None:
    protocol = online()
    for name in ("a", "b"):
        options = "pause"
        protocol.receive(ack(protocol.subscribe("t", sub_id=name, bookmark="0", options=options)))
    protocol.receive(ack(protocol.subscribe("t", sub_id="a,b", options="resume")))
    again = sent_again(protocol)
    assert [(header["sub_id"], header.get("o")) for header in again] == [
        ("a", "places"),
        ("b", "places"),
    ]


def test_an_ended_subscription_stays_ended() -> None:
    protocol = online()
    protocol.receive(ack(protocol.subscribe("t", sub_id="s")))
    protocol.receive(ack(protocol.unsubscribe("s")))
    assert sent_again(protocol) == []


def test_a_subscription_that_is_refused_the_second_time_ends_with_the_reason() -> None:
    protocol = online()
    request = protocol.subscribe("t")
    protocol.receive(ack(request))
    sent_again(protocol)
    protocol.receive(ack(request, status="failure", reason="not entitled"))
    assert isinstance(inbox_of(request).error, NotEntitledError)


def test_a_bookmark_subscription_resumes_behind_the_last_message_and_drops_duplicates() -> None:
    protocol = online()
    request = protocol.subscribe("t", bookmark="0", sub_id="s")
    assert sent(protocol)[0][0]["a"] == "processed,persisted"
    protocol.receive(ack(request) + delivery("s", "7|1|", b"1") + delivery("s", "7|2|", b"2"))
    [again] = sent_again(protocol)
    assert again["bm"] == "7|2|"
    protocol.receive(delivery("s", "7|2|", b"2") + delivery("s", "8|1|", b"3"))
    assert bodies(request) == [b"1", b"2", b"3"]


def test_what_is_persisted_everywhere_is_a_point_to_resume_from_as_well() -> None:
    protocol = online()
    request = protocol.subscribe("t", bookmark="0|1|", sub_id="s")
    protocol.receive(ack(request) + ack(request, "persisted", bm="9|9|"))
    assert sent_again(protocol)[0]["bm"] == "9|9|"
    protocol.receive(delivery("s", "7|1|"))
    assert sent_again(protocol)[0]["bm"] == "9|9|,7|1|"
    assert not inbox_of(request).messages[0].header.acks, "that ack was not asked for"


@pytest.mark.parametrize("options", [None, "replace"])
def test_a_refused_change_leaves_the_subscription_where_it_stood(options: str | None) -> None:
    protocol = online()
    protocol.receive(ack(protocol.subscribe("t", bookmark="0", sub_id="s")))
    protocol.receive(delivery("s", "7|1|"))
    change = protocol.subscribe("t", bookmark="0", sub_id="s", options=options)
    protocol.receive(ack(change, status="failure", reason="bad filter"))
    protocol.output.clear()
    assert sent_again(protocol)[0]["bm"] == "7|1|"


def test_a_replay_that_replaces_a_subscription_is_whole() -> None:
    protocol = online()
    first = protocol.subscribe("t", bookmark="0", sub_id="s")
    protocol.receive(ack(first) + delivery("s", "7|1|", b"1"))
    change = protocol.subscribe("t", bookmark="0", sub_id="s", options="replace")
    protocol.receive(ack(change) + delivery("s", "7|1|", b"1"))
    assert bodies(first) == [b"1", b"1"]
    protocol.receive(ack(protocol.subscribe("t", sub_id="s", options="replace")))
    protocol.output.clear()
    assert "bm" not in sent_again(protocol)[0]


def test_a_replay_with_an_end_keeps_its_end() -> None:
    protocol = online()
    protocol.receive(ack(protocol.subscribe("t", bookmark="[20200101T000000:7|9|]", sub_id="s")))
    protocol.receive(delivery("s", "7|1|"))
    assert sent_again(protocol)[0]["bm"] == "(7|1|:7|9|]"


def test_a_query_as_of_a_bookmark_is_not_repeated_once_its_records_are_there() -> None:
    protocol = online()
    request = protocol.sow_and_subscribe("t", bookmark="7|1|", sub_id="s", order_by="/a")
    begin = ack(request) + frame({"c": "group_begin", "query_id": "s"})
    protocol.receive(begin)
    assert sent_again(protocol)[0]["c"] == "sow_and_subscribe"
    protocol.receive(begin + frame({"c": "group_end", "query_id": "s"}) + delivery("s", "7|2|"))
    [again] = sent_again(protocol)
    assert (again["c"], again["bm"]) == ("subscribe", "7|2|")
    assert not again.keys() & {"query_id", "orderby", "bs", "top_n"}


def test_the_most_recent_bookmark_is_looked_up() -> None:
    protocol = online()
    assert protocol.subscribe("t", bookmark=MOST_RECENT, sub_id="s").header.bookmark == "0"
    protocol.receive(delivery("s", "7|5|"))
    protocol.unsubscribe("s")
    assert protocol.subscribe("t", bookmark=MOST_RECENT, sub_id="s").header.bookmark == "7|5|"
    assert protocol.subscribe("t", bookmark=MOST_RECENT).header.bookmark == "0"


# Commands


def test_commands_without_an_answer_are_given_again_after_subscriptions_and_messages() -> None:
    protocol = online()
    flush, unsubscribe = protocol.flush(), protocol.unsubscribe("other")
    protocol.publish("t", b"")
    protocol.subscribe("t", sub_id="s")
    protocol.sow("t")
    again = sent_again(protocol)
    assert [header["c"] for header in again] == ["subscribe", "p", "flush", "unsubscribe", "sow"]
    protocol.receive(ack(flush, "completed") + ack(unsubscribe))
    assert (flush.is_done, unsubscribe.is_done) == (True, True)


def test_commands_given_without_a_connection_are_sent_with_the_next() -> None:
    protocol = make()
    protocol.subscribe("t")
    deletion = protocol.sow_delete("t", filter="1=1")
    protocol.acknowledge("q", ["1|1|"])
    protocol.publish("t", b"")
    assert not protocol.output
    protocol.begin_session(Header(command="ack"))
    commands = [(header["c"], header.get("bm")) for header, _ in sent(protocol)]
    assert commands == [
        ("sow_delete", "1|1|"),
        ("subscribe", None),
        ("p", None),
        ("sow_delete", None),
    ]
    assert not deletion.is_done


# Queues


def leased(sub_id: str, *numbers: int) -> bytes:
    return b"".join(
        frame({"c": "p", "t": "q", "sids": sub_id, "bm": f"1|{n}|", "lp": "2030"}, b"%d" % n)
        for n in numbers
    )


def taken(request: PendingRequest) -> tuple[StreamInbox, Message]:
    inbox = inbox_of(request)
    return inbox, inbox.messages.popleft()


def test_acknowledgements_that_have_collected_come_before_the_next_sessions_subscriptions() -> None:
    protocol = online()
    request = protocol.subscribe("q", sub_id="s", max_backlog=100, auto_ack=True)
    protocol.receive(ack(request, opts="max_backlog=100") + leased("s", 1, 2, 3, 4))
    sent(protocol)
    protocol.settle_message(*taken(request), None, 0.0)
    lose(protocol)
    assert bodies(request) == [], "they will be delivered again"
    protocol.begin_session(Header(command="ack"))
    again = [header for header, _ in sent(protocol)]
    assert [(header["c"], header.get("bm")) for header in again] == [
        ("sow_delete", "1|1|"),
        ("subscribe", None),
    ]
    assert again[1]["o"] == "max_backlog=100"


def test_acknowledgements_are_sent_again_until_they_are_known_to_be_safe() -> None:
    protocol = online()
    protocol.acknowledge("q", ["1|1|", "1|2|"])
    protocol.acknowledge("q", ["1|3|"], "cancel")
    question = protocol.flush_acks()
    protocol.acknowledge("q", ["1|4|"])
    sent(protocol)
    again = sent_again(protocol)
    assert [header.get("bm", header["c"]) for header in again] == ["1|1|,1|2|", "1|4|", "flush"]
    protocol.receive(ack(question, "persisted"))
    assert [header["bm"] for header in sent_again(protocol)] == ["1|4|"]
    refused = protocol.flush_acks()
    protocol.receive(ack(refused, "persisted", status="failure", reason="not stored"))
    assert [header["bm"] for header in sent_again(protocol)] == ["1|4|"]


def test_a_client_asks_by_itself_whether_acknowledgements_are_safe() -> None:
    """So that it need not keep all of them."""
    protocol = online()
    for number in range(1, 2500):
        protocol.acknowledge("q", [f"1|{number}|"])
    commands = [header for header, _ in sent(protocol)]
    questions = [header for header in commands if header["c"] == "flush"]
    assert [commands.index(question) for question in questions] == [1000, 2001]
    for question in questions:
        answer = {"c": "ack", "a": "persisted", "cid": question["cid"], "status": "success"}
        protocol.receive(frame(answer))
    assert len(sent_again(protocol)) == 499


@pytest.mark.parametrize(
    ("options", "expected"),
    [(None, ["1|1|"]), ("expire", ["1|1|"]), ("cancel", []), ("cancel,delay=5000ms", [])],
)
def test_without_a_session_messages_are_done_with_but_have_gone_back_already(
    options: str | None, expected: list[str]
) -> None:
    protocol = online()
    request = protocol.subscribe("q", sub_id="s")
    protocol.receive(ack(request) + leased("s", 1))
    inbox, message = taken(request)
    lose(protocol)
    protocol.settle_message(inbox, message, options, 0.0)
    protocol.begin_session(Header(command="ack"))
    said = [header for header, _ in sent(protocol) if header["c"] == "sow_delete"]
    assert [header["bm"] for header in said] == expected


@pytest.mark.parametrize(
    ("granted", "ack_batch", "together"),
    [(1, None, 1), (2, None, 1), (10, None, 5), (10, 3, 3), (10, 50, 5), (1000, None, 80)],
)
def test_acknowledgements_are_sent_before_the_queue_waits_for_them(
    granted: int, ack_batch: int | None, together: int
) -> None:
    protocol = online()
    request = protocol.subscribe("q", sub_id="s", max_backlog=1000, ack_batch=ack_batch)
    protocol.receive(ack(request, opts=f"max_backlog={granted}"))
    protocol.receive(leased("s", *range(1, together + 1)))
    sent(protocol)
    for _ in range(together):
        assert not protocol.output
        protocol.settle_message(*taken(request), None, 0.0)
    [(header, _)] = sent(protocol)
    assert header["bm"] == ",".join(f"1|{n}|" for n in range(1, together + 1))
    assert protocol.acks_due is None


def test_acknowledgements_go_before_what_relies_on_them() -> None:
    protocol = online()
    request = protocol.subscribe("q", sub_id="s", max_backlog=100)
    protocol.receive(ack(request, opts="max_backlog=100") + leased("s", 1, 2))
    sent(protocol)
    protocol.settle_message(*taken(request), None, 5.0)
    assert protocol.acks_due == pytest.approx(5.1)
    protocol.flush()
    assert [header["c"] for header, _ in sent(protocol)] == ["sow_delete", "flush"]
    protocol.settle_message(*taken(request), None, 6.0)
    protocol.unsubscribe("s")
    assert [header["c"] for header, _ in sent(protocol)] == ["sow_delete", "unsubscribe"]


def test_a_deletion_that_may_have_taken_effect_fails() -> None:
    protocol = online()
    deletion = protocol.sow_delete("t", filter="1=1")
    assert sent_again(protocol) == []
    assert deletion.error is LOST


def test_deletions_are_not_numbered_beside_the_publish_store() -> None:
    with pytest.raises(ValueError, match="leave out sequence"):
        online().sow_delete("t", filter="1=1", sequence=5)


def test_a_query_that_has_handed_out_records_fails_and_keeps_them() -> None:
    protocol = online()
    fresh, begun = protocol.sow("t"), protocol.sow("t")
    record = frame({"c": "sow", "query_id": begun.command_id, "bs": 1}, b'{"k":"1","l":1}a')
    protocol.receive(ack(begun) + record)
    assert [header["cid"] for header in sent_again(protocol)] == [fresh.command_id]
    assert (inbox_of(begun).error, bodies(begun)) == (LOST, [b"a"])
    assert not inbox_of(fresh).is_ended


def test_heartbeats_begin_again_with_every_session() -> None:
    protocol = online()
    protocol.receive(ack(protocol.heartbeat(5)))
    assert [header["o"] for header in sent_again(protocol)] == ["start,5"]
    assert [header["o"] for header in sent_again(protocol)] == ["start,5"], "and not twice"


def test_half_a_frame_of_the_old_connection_does_not_spoil_the_new() -> None:
    protocol = online()
    request = protocol.flush()
    protocol.receive(ack(request, "completed")[:-5])
    sent_again(protocol)
    protocol.receive(ack(request, "completed"))
    assert request.is_done


def test_whoever_waits_learns_that_there_will_be_no_more_connections() -> None:
    protocol = online()
    stream, flush = protocol.subscribe("t"), protocol.flush()
    lose(protocol)
    error = GaveUpError("enough")
    protocol.close_permanently(error)
    assert (inbox_of(stream).error, flush.error) == (error, error)
    with pytest.raises(GaveUpError):
        protocol.publish("t", b"")


def test_a_closed_client_ends_its_streams_without_an_error() -> None:
    protocol = online()
    stream = inbox_of(protocol.subscribe("t"))
    lose(protocol)
    assert not stream.is_ended
    protocol.close()
    assert (stream.is_ended, stream.error) == (True, None)


# Messages


def test_messages_are_numbered_behind_what_the_server_has() -> None:
    protocol = online(sequence=41)
    protocol.publish("t", b"x")
    protocol.publish_all("t", [b"y"], delta=True)
    assert sent(protocol) == [
        ({"c": "p", "t": "t", "a": "persisted", "s": 42}, b"x"),
        ({"c": "delta_publish", "t": "t", "a": "persisted", "s": 43}, b"y"),
    ]


def test_only_what_the_server_does_not_have_is_sent_again() -> None:
    protocol = online()
    protocol.publish_all("t", [b"1", b"2", b"3", b"4"])
    protocol.receive(frame({"c": "ack", "a": "persisted", "s": 2, "status": "success"}))
    assert [header["s"] for header in sent_again(protocol)] == [3, 4]
    assert [header["s"] for header in sent_again(protocol, sequence=3)] == [4]


def test_what_other_instances_do_not_have_is_kept_and_numbers_go_on_behind_it() -> None:
    """The bookmark of the logon's ack has the highest number; not all up to that is persisted."""
    protocol = online(sequence=2, bookmark="7|5|")
    protocol.publish_all("t", [b"6", b"7"])
    assert [header["s"] for header, _ in sent(protocol)] == [6, 7]
    assert [header["s"] for header in sent_again(protocol, sequence=5, bookmark="7|7|")] == [6, 7]
    assert [header["s"] for header in sent_again(protocol, sequence=6, bookmark="7|7|")] == [7]
    protocol.publish("t", b"8")
    assert [header["s"] for header, _ in sent(protocol)] == [8]


def test_a_refused_message_is_told_and_not_sent_again() -> None:
    told: list[tuple[bytes, str]] = []
    protocol = RecoveringProtocol(
        PublishStore(),
        BookmarkStore(),
        lambda message, error: told.append((message.body, error.reason)),
    )
    online(protocol).publish_all("t", [b"1", b"2", b"3"])
    failure = {"c": "ack", "a": "persisted", "status": "failure"}
    protocol.receive(frame(failure | {"s": 1, "reason": "not entitled"}))
    protocol.receive(frame(failure | {"s": 2, "reason": "duplicate"}))
    assert told == [], "the shell decides when"
    protocol.publish_sequence.handler_calls.call_all()
    assert told == [(b"1", "not entitled")]
    assert [header["s"] for header in sent_again(protocol)] == [3]


def test_a_confirmed_message_is_confirmed_by_whichever_connection() -> None:
    protocol = online()
    by_ack = protocol.confirmed_publish("t", b"1", "processed", correlation_id="abc")
    by_logon = protocol.confirmed_publish("t", b"2", "persisted")
    [first, second] = sent_again(protocol)
    assert (first["cid"], first["a"], first["x"]) == (
        by_ack.command_id,
        "processed,persisted",
        "abc",
    )
    assert (second["cid"], second["s"]) == (by_logon.command_id, 2)
    protocol.receive(ack(by_ack, "processed"))
    assert (by_ack.is_done, by_logon.is_done) == (True, False)
    sent_again(protocol, sequence=2)
    assert by_logon.acks["persisted"].status == "success"


def test_a_refused_confirmed_message_fails_and_leaves_the_store() -> None:
    store = PublishStore()
    protocol = online(make(store))
    request = protocol.confirmed_publish("t", b"1", "persisted")
    protocol.receive(ack(request, "persisted", status="failure", reason="not entitled"))
    assert isinstance(request.error, NotEntitledError)
    assert len(store) == 0


def test_sequence_numbers_belong_to_the_store() -> None:
    protocol = online()
    with pytest.raises(ValueError, match="numbers the messages"):
        protocol.publish("t", b"", sequence=7)


# Everything together, cut anywhere


class Network:
    """Joins the client's core to the model server, and cuts the connection now and then.

    Args:
        server: the server.
        protocol: the client.
        chance: decides how many bytes pass, and when the connection is cut.
        cuts: how often.
    """

    def __init__(
        self, server: ModelServer, protocol: RecoveringProtocol, chance: random.Random, cuts: int
    ) -> None:
        self._server = server
        self._protocol = protocol
        self._chance = chance
        self._cuts = cuts
        self._to_client = bytearray()
        self._logon: PendingRequest | None = None

    def step(self, said_by_server: bytes = b"") -> None:
        """Let some bytes pass in each direction, or cut the connection."""
        protocol = self._protocol
        self._to_client += said_by_server
        if self._logon is None:
            self._logon = protocol.logon("publisher", None, None, "json")
        if self._cuts and self._chance.random() < 0.2:
            self._cuts -= 1
            self._cut()
            return
        self._to_client += self._server.receive(self._some(protocol.output))
        protocol.receive(self._some(self._to_client))
        if not protocol.is_online and self._logon.is_done and self._logon.error is None:
            protocol.begin_session(self._logon.acks["processed"])

    def _some(self, data: bytearray) -> bytes:
        size = self._chance.randint(0, min(len(data), 200))
        taken = bytes(data[:size])
        del data[:size]
        return taken

    def _cut(self) -> None:
        self._server.forget_connection()
        self._to_client.clear()
        self._protocol.close(LOST)
        self._logon = None


@settings(max_examples=examples(150), deadline=None)
@given(seed=st.integers(0, 2**32), cuts=st.integers(0, 12), refuse=st.booleans())
def test_every_message_is_stored_once_and_delivered_once_in_order_wherever_connections_are_cut(
    seed: int, cuts: int, refuse: bool
) -> None:
    chance = random.Random(seed)
    server = ModelServer(refused_bodies={b"4"} if refuse else set())
    store = PublishStore()
    protocol = make(store)
    network = Network(server, protocol, chance, cuts)
    stream = inbox_of(protocol.subscribe("t", bookmark="0", sub_id="s"))
    others = 0
    for number in range(15):
        protocol.publish("t", b"%d" % number)
        for _ in range(chance.randint(0, 4)):
            said = b""
            if chance.random() < 0.3:
                others += 1
                said = server.publish("someone else", others, b"other %d" % others)
            network.step(said)
    flush = protocol.flush()
    for _ in range(2000):
        network.step()
        if flush.is_done and len(stream.messages) >= len(server.log):
            break
    own = [entry.body for entry in server.log if entry.client == "publisher"]
    assert own == [b"%d" % number for number in range(15) if not (refuse and number == 4)]
    assert [message.body for message in stream.messages] == [entry.body for entry in server.log]
    assert all(message.sequence > 12 for message in store), "acknowledged up to there"
