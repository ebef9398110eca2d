"""What makes actions run, and what they are told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from actions.module import ModuleProvisionError
from amperage.wire.bookmarks import client_hash
from server.util.encoding import text_to_bytes
from tests.actions.support import Bench, Use, echo, on_publish, publish
from tests.engine.replicas import Replica, Road
from tests.storage.sow.support import topic_spec

CLIENT = "{{AMPS_CLIENT_NAME}}/{{AMPS_AUTHENTICATION_ID}}"


def test_the_life_of_a_client() -> None:
    bench = Bench()
    for event in ("connect", "logon", "disconnect"):
        bench.add((f"amps-action-on-{event}-client", {}), echo(f"{event} {CLIENT}"))
    bench.add(("amps-action-on-connect-client", {}), echo("{{AMPS_CONNECTION_NAME}}"))

    def live() -> None:
        bench.core.log_on("life").leave()

    bench.run(live)
    assert sorted(bench.echoes()) == [
        "connect core-test-1/",
        "core-test-1",
        "disconnect life/",
        "logon life/",
    ]


WATCHED = [
    ("orders", "orders", True),
    ("orders", "more-orders", False),
    ("^ord", "orders", True),
    ("^ord", "^ord", True),  # a subscription to the pattern itself
    ("x", "orders", False),
]


@pytest.mark.parametrize(("watched", "subscribed", "runs"), WATCHED)
def test_subscriptions(watched: str, subscribed: str, runs: bool) -> None:
    bench = Bench()
    for event in ("subscribe", "unsubscribe"):
        bench.add(
            (f"amps-action-on-{event}", {"Topic": watched, "MessageType": "json"}),
            echo(f"{event} {{{{AMPS_TOPIC}}}} {{{{AMPS_OPTIONS}}}} {{{{AMPS_FILTER}}}}"),
        )

    def live() -> None:
        peer = bench.core.log_on()
        peer.send(
            {"c": "subscribe", "t": subscribed, "sub_id": "1", "f": "/a=1", "o": "no_empties"}
        )
        peer.send({"c": "subscribe", "t": "elsewhere", "sub_id": "2"})
        peer.leave()

    bench.run(live)
    assert bench.echoes() == (
        [
            f"subscribe {subscribed} no_empties /a=1",
            f"unsubscribe {subscribed} no_empties /a = 1",
        ]
        if runs
        else []
    )


def test_subscriptions_of_another_message_type_do_not_count() -> None:
    bench = Bench()
    bench.add(("amps-action-on-subscribe", {"Topic": "t", "MessageType": "fix"}), echo("!"))
    bench.run(lambda: bench.core.log_on().send({"c": "subscribe", "t": "t", "sub_id": "1"}))
    assert bench.echoes() == []


PUBLISHES: list[tuple[dict[str, str | list[str]], list[str]]] = [
    ({}, ['{"q":1}', '{"q":2}']),
    ({"Filter": "/q > 1"}, ['{"q":2}']),
    ({"MessageSource": "local"}, ['{"q":1}', '{"q":2}']),
    ({"MessageSource": "Replicated"}, []),
    ({"Options": "select=[-/]"}, ["{}", "{}"]),
]


@pytest.mark.parametrize(("more", "expected"), PUBLISHES)
def test_publishes(more: dict[str, str | list[str]], expected: list[str]) -> None:
    bench = Bench()
    bench.add(on_publish("^ord", **more), echo("{{AMPS_DATA}}"))
    publisher = bench.core.log_on()

    def publish_some() -> None:
        for topic, body in (("orders", b'{"q":1}'), ("other", b'{"q":9}'), ("ord", b'{"q":2}')):
            publisher.send({"c": "publish", "t": topic}, body)

    bench.run(publish_some)
    assert bench.echoes() == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [("all", ["here", "there", "there"]), ("local", ["here"]), ("replicated", ["there", "there"])],
)
@pytest.mark.parametrize("topic", ["orders", "log"])
def test_publishes_at_other_instances(
    tmp_path: Path, topic: str, source: str, expected: list[str]
) -> None:
    """Those to topics with records count like others, and so do those with correlation ids."""
    bench = Bench()
    bench.core.keep(topic_spec("/id"))
    here, there = Replica("here", tmp_path, core=bench.core), Replica("there", tmp_path)
    bench.add(on_publish(topic, MessageSource=source), echo("{{AMPS_DATA}} {{AMPS_BOOKMARK}}"))

    def publish_some() -> None:
        for replica in (here, there):
            publisher = replica.client(replica.name)
            publisher.send({"c": "publish", "t": topic, "s": 1}, replica.name.encode())
        publisher.send({"c": "publish", "t": topic, "s": 2, "x": "mark"}, b"there")
        Road(there, here).carry()

    bench.run(publish_some)
    bookmarks = {
        name: f"{client_hash(name)}|{number}|" for name, number in (("here", 1), ("there", 2))
    }
    echoes = bench.echoes()
    assert [text.split()[0] for text in echoes] == expected
    assert echoes[-1].split()[1] == bookmarks[expected[-1]]
    here.close()
    there.close()


def test_what_is_known_of_a_publish() -> None:
    bench = Bench()
    bench.add(
        on_publish("orders"),
        echo(
            "{{AMPS_TOPIC}} {{AMPS_DATA}} {{AMPS_DATA_LENGTH}} [{{AMPS_BOOKMARK}}]"
            " {{AMPS_TIMESTAMP}} {{AMPS_CLIENT_NAME}}"
        ),
    )
    publisher = bench.core.log_on("p")
    bench.run(lambda: publisher.send({"c": "publish", "t": "orders"}, b"{}"))
    assert bench.echoes() == ["orders {} 2 [] 19700112T134640.000000Z p"]


@pytest.mark.parametrize(
    "more", [{"Filter": "/a ="}, {"Topic": "a["}, {"Options": "oof"}, {"MessageType": ""}]
)
def test_what_cannot_be_watched_is_said_at_the_start(more: dict[str, str | list[str]]) -> None:
    with pytest.raises((ModuleProvisionError, KeyError)):
        Bench().add(on_publish("a", **more), echo(""))


def test_deliveries_are_told_once_per_client() -> None:
    bench = Bench()
    bench.add(
        ("amps-action-on-deliver-message", {"Topic": "^ord", "MessageType": "json"}),
        echo("{{AMPS_CLIENT_NAME}} {{AMPS_DATA}} {{AMPS_CORRELATION_ID}}"),
    )
    one, two, publisher = (bench.core.log_on(name) for name in ("one", "two", "p"))
    one.send({"c": "subscribe", "t": "orders", "sub_id": "1"})
    one.send({"c": "subscribe", "t": "^orders", "sub_id": "2"})
    two.send({"c": "subscribe", "t": "orders", "sub_id": "1", "f": "/q = 2"})
    two.send({"c": "subscribe", "t": "other", "sub_id": "2"})

    def publish_some() -> None:
        publisher.send({"c": "publish", "t": "orders", "x": "c"}, b'{"q":1}')
        publisher.send({"c": "publish", "t": "orders"}, b'{"q":2}')
        publisher.send({"c": "publish", "t": "other"}, b'{"q":2}')

    bench.run(publish_some)
    assert sorted(bench.echoes()) == ['one {"q":1} c', 'one {"q":2} ', 'two {"q":2} ']


def test_an_event_takes_the_variables_along() -> None:
    bench = Bench()
    bench.add(None, ("amps-action-do-execute-event", {"EventVariable": "WHICH"}))
    bench.add(("amps-action-on-execute-event", {"Event": "e1"}), echo("1 {{X}}"))
    bench.add(("amps-action-on-execute-event", {"Event": "e1"}), echo("2 {{X}}"))
    bench.add(("amps-action-on-execute-event", {"Event": "e2"}), echo("3 {{X}}"))
    bench.perform(WHICH=b"e1", X=b"x")
    bench.perform(WHICH=b"nobody", X=b"x")
    assert sorted(bench.echoes()) == ["1 x", "2 x"]


def test_a_minidump_is_told_with_its_path() -> None:
    bench = Bench()
    bench.add(None, ("amps-action-do-minidump", {}))
    bench.add(("amps-action-on-minidump", {}), echo("{{AMPS_MINIDUMP_PATH}}"))
    bench.perform()
    assert bench.echoes() == ["/dumps/one.txt"]


def test_publishing_is_like_any_publish_and_asks_nobody() -> None:
    bench = Bench()
    bench.add(None, publish("{{T}}", '{"v":"{{V}}"}'))
    subscriber = bench.core.log_on("s")
    subscriber.send({"c": "subscribe", "t": "out", "sub_id": "1", "f": "/v = 'x'"})
    subscriber.take_frames()
    bench.perform(T=b"out", V=b"x")
    bench.perform(T=b"out", V=b"y")
    ((header, body),) = subscriber.take_frames()
    assert (header["t"], json.loads(body)) == ("out", {"v": "x"})
    assert len(bench.core.engine.sessions) == 1


VALUES = [
    ("json", b'{"a":"x","n":1.50,"deep":{"b":[7]},"t":true,"z":null}', "N=/n", "1.5"),
    ("json", b'{"a":"x","deep":{"b":[7]}}', "N=/deep/b", "7"),
    ("json", b'{"a":"x"}', "N=CONCAT(/a, ' ', /a)", "x x"),
    ("json", b'{"z":null}', "N=/z", ""),
    ("json", b"no json", "N=/z", ""),
    ("json", b'{"a":3}', "N=/a * {{F}}", "6"),
    ("xml", b"<info><value>5</value></info>", "N = /info/value", "5"),
    ("nvfix", b"sym=IBM\x01", "N=/sym", "IBM"),
]


@pytest.mark.parametrize(("message_type", "body", "value", "expected"), VALUES)
def test_values_of_a_message(message_type: str, body: bytes, value: str, expected: str) -> None:
    bench = Bench()
    step: Use = (
        "amps-action-do-extract-values",
        {"MessageType": message_type, "Data": "{{AMPS_DATA}}", "Value": [value, "OTHER=1"]},
    )
    bench.add(None, step, echo("{{N}}"))
    bench.perform(AMPS_DATA=body, F=text_to_bytes("2"))
    assert bench.echoes() == [expected]


def test_transports_are_switched_by_name_or_all() -> None:
    bench = Bench()
    bench.add(None, ("amps-action-do-disable-transport", {"Transport": "{{X}}"}))
    bench.perform(X=b"one")
    assert bench.transports.open_names == {"two"}
    bench.actions.clear()
    bench.add(None, ("amps-action-do-enable-transport", {}))
    bench.perform()
    assert bench.transports.open_names == {"one", "two"}


def test_what_needs_no_more_than_a_word() -> None:
    bench = Bench()
    bench.add(
        None,
        ("amps-action-do-rotate-logs", {}),
        ("amps-action-do-nothing", {}),
        ("amps-action-do-vacuum-statistics", {}),
        ("amps-action-do-truncate-statistics", {"Age": "1d"}),
        ("amps-action-do-reset-authentication", {}),
        ("amps-action-do-reset-entitlement", {}),
        ("amps-action-do-shutdown", {}),
    )
    bench.perform()
    assert (bench.rotations, bench.stopped) == (1, ["none"])
