"""Queries, subscriptions and replays, as a browser runs them over a websocket of its own."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.admin.console.browser import Browser
from tests.admin.console.servers import ODD_NAME, WEBSOCKET, Shop, running_shop
from tests.admin.support import running_admin
from tests.support.long_form import ONLY_LONG, spread
from tests.support.server import free_port, running_configuration
from tests.support.waiting import wait_until

MAX_ROWS: Final = 10_000
"""What a page keeps of messages."""

DOWN, ENTER = "\ue015", "\ue007"

LOGON_REQUIRED: Final = """
<Transport>
  <Name>any-ws</Name><Type>tcp</Type><InetAddr>127.0.0.1:{port}</InetAddr>
  <Protocol>websocket</Protocol>
  <Authentication>
    <Module>amps-default-authentication-module</Module>
    <Options><AllowSpoofing>true</AllowSpoofing><RequireUsername>true</RequireUsername></Options>
  </Authentication>
</Transport>
"""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with running_shop(tmp_path_factory.mktemp("shop")) as running:
        yield running


@pytest.fixture
def console(browser: Browser, shop: Shop) -> Browser:
    browser.port = shop.admin.port
    return browser


def publish(shop: Shop, topic: str, *bodies: bytes, message_type: str = "json") -> None:
    with shop.admin.server.log_on("somebody", message_type) as peer:
        for body in bodies:
            peer.send({"c": "publish", "t": topic}, body)
        peer.flush()


def cells(console: Browser) -> list[str]:
    """The rows that are drawn, each with what it says."""
    found: list[str] = console.run(
        "return [...document.querySelectorAll('tr[data-id]')]"
        ".map((row) => [...row.cells].map((cell) => cell.innerText).join(' '))"
    )
    return found


def is_live(console: Browser) -> None:
    console.shows("#main .page-head .standing", "Live")


def leave(console: Browser) -> None:
    """Leave a page before its server ends, which it would complain of."""
    assert console.complaints() == []
    console.close_page()


def body_shown(console: Browser) -> str:
    console.find("tr[data-id]").click()
    console.shows("aside pre.body")
    return console.text("aside pre.body")


def downloads(console: Browser, directory: Path) -> None:
    console.driver.execute_cdp_cmd(
        "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(directory)}
    )


def downloaded(path: Path) -> str:
    wait_until(path.exists, f"{path} was not saved")
    return path.read_bytes().decode()


def test_records_change_come_and_go_while_one_looks(console: Browser, shop: Shop) -> None:
    publish(shop, "customers", b'{"id":1,"name":"Ada","tier":1}', b'{"id":2,"name":"Bo","tier":9}')
    console.open("query")
    console.type("input[name=topic]", "customers")
    console.type("input[name=filter]", "/tier < 5")
    console.button("Run").click()
    is_live(console)
    console.shows("tr[data-id]", "Ada")
    assert "Bo" not in console.text("[role=grid]")
    assert "topic=customers" in console.driver.current_url
    publish(shop, "customers", b'{"id":1,"name":"Ada Lovelace","tier":1}')
    console.shows("td.changed", "Ada Lovelace")
    assert "1" not in console.text("td.changed")  # nothing else has changed
    console.until(lambda: console.count("td.changed") == 0)
    publish(shop, "customers", b'{"id":3,"name":"Cy","tier":2}')
    console.until(lambda: "Cy" in console.text("[role=grid]"))
    publish(shop, "customers", b'{"id":1,"name":"Ada Lovelace","tier":7}')
    console.shows("td.leaving")
    console.until(lambda: "Ada" not in console.text("[role=grid]"))
    console.driver.refresh()  # a link to a query runs it
    console.until(lambda: [row.split()[-2] for row in cells(console)] == ["Cy"])


def test_a_query_is_ordered_and_cut(console: Browser, shop: Shop) -> None:
    publish(shop, "customers", *(b'{"id":%d,"rank":%d}' % (n, n % 5 + n) for n in range(100, 120)))
    console.open("query?topic=customers&mode=once&filter=/rank+>+0&by=/rank+DESC&top=3")
    console.shows("#main .standing", "Complete")
    console.shows(".found", "3 records")
    ranks = [int(row.split()[-1]) for row in cells(console)]
    assert ranks == sorted(ranks, reverse=True)
    assert ranks[0] == 123


def test_what_is_paused_stays_and_what_is_stopped_ends(console: Browser, shop: Shop) -> None:
    console.open("query?topic=ticks&mode=messages")
    is_live(console)
    publish(shop, "ticks", b'{"n":1}')
    console.shows(".found", "1 message")
    console.button("Pause").click()
    publish(shop, "ticks", b'{"n":2}')
    console.shows("#main .standing", "Paused")
    assert console.text(".found") == "1 message"
    console.button("Pause").click()
    console.shows(".found", "2 messages")
    console.button("Stop").click()
    console.shows("#main .standing", "Stopped")
    assert console.count("tr[data-id]") == 2


def test_a_filter_is_checked_while_it_is_typed(console: Browser) -> None:
    console.open("query?topic=orders&mode=once")
    console.shows("#main .standing", "Complete")
    console.type("input[name=filter]", "/price > > 3")
    console.shows(".fault", "at character 10")
    assert console.text(".fault mark") == ">"
    assert console.inaccessible(always=True) == []
    console.button("Run").click()
    console.shows("[role=alert]", "bad filter")


def test_names_of_fields_are_completed(console: Browser, shop: Shop) -> None:
    publish(shop, "customers", b'{"id":50,"address":{"city":"Oslo"}}')
    console.open("query?topic=customers&mode=once&filter=/id+=+50&top=10")
    console.shows("tr[data-id]", "Oslo")
    console.open("query?topic=customers&mode=once")
    console.until(lambda: "/address/city" in console.text("[role=grid]"))
    console.type("input[name=filter]", "/id > 1 AND /ci")
    console.shows("[role=option]", "/address/city")
    assert console.inaccessible() == []
    console.keys(DOWN, ENTER)
    filled = "return document.querySelector('input[name=filter]').value"
    console.until(lambda: console.run(filled) == "/id > 1 AND /address/city")
    assert console.count("[role=option]") == 0


@pytest.mark.parametrize("page", spread(["query", "replay"], 1))
def test_names_are_completed_before_anything_was_run(
    console: Browser, shop: Shop, page: str
) -> None:
    shop.publish(1)
    console.load(page)
    console.until(lambda: console.count("#known-topics option") > 0)
    console.type("input[name=topic]", "orders")
    console.type("input[name=filter]", "/pri")
    console.shows("[role=option]", "/price")


BODIES: Final = [
    ("json", b'{"a":"<img src=x onerror=alert(1)>"}', '"a": "<img src=x onerror=alert(1)>"'),
    ("json", b"<script>alert(1)</script>", "<script>alert(1)</script>"),
    ("json", b'{"a":12345678901234567890}', '"a": 12345678901234567890'),
    ("json", b'{"a":{"b":[1,2]}}', '"b": [\n      1,\n      2\n    ]'),
    ("json", b"\xff\xfe{", "000000  ff fe 7b"),
    ("json", b"", "(empty)"),
    ("nvfix", b"side=buy\x01text=a\x02b\x01", "side = buy\ntext = a\\u0002b"),
    ("fix", b"35=D\x0155=IBM\x01", "35 = D\n55 = IBM"),
    ("xml", b'<o><id n="1">7</id><e/></o>', '<o>\n  <id n="1">7</id>\n  <e/>\n</o>'),
    ("binary", b"\x00\x01<b>", "000000  00 01 3c 62 3e"),
    ("binary", "\u202eplain".encode(), "\\u202eplain"),
    ("bson", b"\x0c\x00\x00\x00\x10a\x00\x07\x00\x00\x00\x00", '"a": 7'),
]


@pytest.mark.parametrize(("message_type", "body", "shown"), spread(BODIES, 4, several=True))
def test_bodies_of_all_types_are_readable_and_inert(
    console: Browser, shop: Shop, message_type: str, body: bytes, shown: str
) -> None:
    console.open(f"query?topic=bodies&mode=messages&type={message_type}")
    is_live(console)
    publish(shop, "bodies", body, message_type=message_type)
    assert shown in body_shown(console)
    assert console.count("aside img, aside script, td img, td script") == 0
    console.shows("aside .values", "bodies")


FIELDS: Final = [
    ("json", b'{"a":{"b":1},"c":[2]}', ["/a/b", "/c"]),
    ("nvfix", b"side=buy\x01", ["/side"]),
    ("xml", b'<o k="1"><id>7</id></o>', ["/o/@k", "/o/id"]),
    ("bson", b"\x0c\x00\x00\x00\x10a\x00\x07\x00\x00\x00\x00", ["/a"]),
]


@pytest.mark.parametrize(("message_type", "body", "paths"), spread(FIELDS, 2, several=True))
def test_fields_become_columns(
    console: Browser, shop: Shop, message_type: str, body: bytes, paths: list[str]
) -> None:
    console.open(f"query?topic=fields&mode=messages&type={message_type}")
    is_live(console)
    publish(shop, "fields", body, message_type=message_type)
    console.shows("tr[data-id]")
    heads = "return [...document.querySelectorAll('th')].map((head) => head.innerText)"
    console.until(lambda: console.run(heads)[2:] == paths)
    console.find(".columns summary").click()
    console.find(".columns input").click()
    console.until(lambda: console.run(heads)[2:] == paths[1:] or len(paths) == 1)


def test_a_very_large_body_is_cut_and_can_be_saved(
    console: Browser, shop: Shop, tmp_path: Path
) -> None:
    downloads(console, tmp_path)
    console.open("query?topic=large&mode=messages")
    is_live(console)
    body = b'{"text":"%s"}' % (b"x" * 10_000_000)
    publish(shop, "large", body)
    assert len(body_shown(console)) < 100_000
    console.shows("aside", "64.0 KiB of 9.5 MiB")
    console.button("Download", "aside").click()
    assert downloaded(tmp_path / "message-1") == body.decode()


def test_a_topic_may_be_called_anything(console: Browser) -> None:
    console.open("query")
    console.type("input[name=topic]", ODD_NAME)
    console.button("Run").click()
    console.shows(".found", "5 records")
    console.find("tr[data-id]").click()
    console.shows("aside .values", ODD_NAME)
    console.open("topics?find=script")
    console.find("tr[data-id]").click()
    console.find("aside a.button").click()
    console.shows(".found", "5 records")


def test_what_is_shown_is_saved(console: Browser, shop: Shop, tmp_path: Path) -> None:
    downloads(console, tmp_path)
    body: dict[str, Any] = {"id": 70, "name": 'a "b", c', "deep": {"n": 1}}
    publish(shop, "customers", json.dumps(body).encode())
    console.open("query?topic=customers&mode=once&filter=/id+=+70&columns=/name,/deep/n")
    console.shows(".found", "1 record")
    console.button("CSV").click()
    (head, row) = csv.reader(downloaded(tmp_path / "query.csv").splitlines())
    assert head[-2:] == ["/name", "/deep/n"]
    assert row[-2:] == [body["name"], "1"]
    console.button("JSON").click()
    (record,) = json.loads(downloaded(tmp_path / "query.json"))
    assert record["body"] == body
    assert record["header"]["t"] == "customers"


def test_memory_is_bounded_and_that_is_said(console: Browser, shop: Shop) -> None:
    console.open("query?topic=flood&mode=messages")
    is_live(console)
    publish(shop, "flood", *(b'{"n":%d}' % number for number in range(MAX_ROWS + 50)))
    console.shows(".notice[role=status]:not([hidden])", "50 older ones were dropped")
    console.shows(".found", "10,000 messages")


def test_topics_of_a_regular_expression_are_told_apart(console: Browser, shop: Shop) -> None:
    console.open("query?topic=^news/&mode=messages&regex=1")
    is_live(console)
    publish(shop, "news/sport", b'{"n":1}')
    publish(shop, "news/arts", b'{"n":2}')
    console.shows(".found", "2 messages")
    assert [row.split()[2] for row in cells(console)] == ["news/arts", "news/sport"]


def test_what_is_refused_is_explained(console: Browser) -> None:
    console.open("query?topic=no-records&mode=once")
    console.shows("[role=alert]", "keeps no records that could be queried")
    assert console.inaccessible() == []


@ONLY_LONG  # others put filters into addresses
def test_a_filter_may_have_braces(console: Browser, shop: Shop) -> None:
    publish(shop, "customers", b'{"id":60,"name":"}{"}')
    console.open("query?topic=customers&mode=once&filter=/name+=+'}{'")
    console.shows(".found", "1 record")


def test_the_past_is_watched_again(console: Browser, shop: Shop) -> None:
    console.open("replay?topic=to-ship&speed=4&gap=none")
    console.shows("#main .standing", "Replaying")
    console.until(lambda: 1 <= console.count("tr[data-id]") < 20)
    console.button("Pause").click()
    console.shows("#main .standing", "Paused")
    console.button("Pause").click()
    console.shows("#main .standing", "caught up with the log")
    assert sorted(int(row.split()[2]) for row in cells(console)) == list(range(20))
    assert console.inaccessible() == []
    console.find("tr[data-id]").click()
    console.shows("aside .values", "bookmark")


def test_a_replay_begins_and_ends_when_one_says(console: Browser) -> None:
    console.open("replay?topic=to-ship&speed=full&from=20250101T000000Z&to=20250102T000000Z")
    console.shows("#main .standing", "Replayed")
    console.shows("[role=grid]", "There are no such messages.")
    console.open("replay?topic=to-ship&speed=full&from=20250101T000000Z&to=20990101T000000Z")
    console.until(lambda: console.count("tr[data-id]") == 20)
    console.button("Stop").click()
    console.shows("#main .standing", "Stopped")


REFUSED: Final = [
    ("topic=customers", "only subscriptions that replay from a transaction log have a rate"),
    ("topic=to-ship&speed=warp", "expected messages a second (1000)"),
]


@pytest.mark.parametrize(("query", "reason"), spread(REFUSED, 1, several=True))
def test_what_cannot_be_replayed_is_explained(console: Browser, query: str, reason: str) -> None:
    console.open(f"replay?{query}")
    console.shows("[role=alert]", reason)


def test_without_a_transport_it_is_said_how_to_get_one(browser: Browser, tmp_path: Path) -> None:
    with running_admin(tmp_path) as admin:
        browser.port = admin.port
        for page in ("query", "replay"):
            browser.open(page)
            browser.shows("pre.body", "<SQLTransport>queries</SQLTransport>")
            browser.shows("pre.body", "<Protocol>websocket</Protocol>")
            assert browser.inaccessible() == []
        leave(browser)


@ONLY_LONG  # a refusal is shown like that of a query; test_delivery.py has the address
def test_an_address_that_is_none_is_named(browser: Browser, tmp_path: Path) -> None:
    section = "<SQLTransport>any-ws</SQLTransport><SQLTransportInetAddr>a:b</SQLTransportInetAddr>"
    transports = WEBSOCKET.format(port=free_port())
    with running_admin(tmp_path, section, transports=transports) as admin:
        browser.port = admin.port
        browser.open("query?topic=news&mode=messages")
        browser.shows("[role=alert]", "is not an address that browsers accept")
        leave(browser)


def test_a_logon_that_is_refused_is_asked_for(browser: Browser, tmp_path: Path) -> None:
    transports = LOGON_REQUIRED.format(port=free_port())
    with running_admin(
        tmp_path, "<SQLTransport>any-ws</SQLTransport>", transports=transports
    ) as admin:
        browser.port = admin.port
        browser.open("query?topic=news&mode=messages")
        browser.shows(".logon", "refuses the logon")
        assert browser.inaccessible() == []
        browser.type(".logon input[name=user]", "ops")
        browser.button("Log on").click()
        is_live(browser)
        assert browser.count(".logon") == 0
        leave(browser)


def test_a_query_goes_on_at_a_server_that_was_away(browser: Browser, tmp_path: Path) -> None:
    browser.logs_are_expected = True  # browsers log that they cannot connect
    transports = WEBSOCKET.format(port=free_port())
    with running_admin(
        tmp_path, "<SQLTransport>any-ws</SQLTransport>", transports=transports
    ) as admin:
        browser.port = admin.port
        browser.open("query?topic=news&mode=messages")
        is_live(browser)
        with admin.server.log_on() as peer:
            peer.send({"c": "publish", "t": "news"}, b'{"n":"before"}')
            browser.shows("tr[data-id]", "before")
        text = (tmp_path / "config.xml").read_text()
    browser.shows("[role=alert]", "The page retries")
    browser.shows("tr[data-id]", "before")
    with (
        running_configuration(tmp_path, text, admin.server.port) as server,
        server.log_on() as peer,
    ):
        is_live(browser)
        peer.send({"c": "publish", "t": "news"}, b'{"n":"after"}')
        browser.until(lambda: "after" in browser.text("[role=grid]"))
