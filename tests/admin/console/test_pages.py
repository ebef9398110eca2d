"""Every page, as a browser shows it: what it says, on wide and narrow screens, to everybody."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from server.admin.console.assets import STATIC
from tests.admin.console.browser import NARROW, WIDE, Browser
from tests.admin.console.servers import ODD_NAME, Shop, running_shop
from tests.support.long_form import ONLY_LONG

_PAGE: Final = re.compile(r'\{ path: "(\w+)", title: "([^"]+)", key: "(\w)"')
PAGES: Final = _PAGE.findall((STATIC / "js/pages.js").read_text())
PATHS: Final = [path for path, _, _ in PAGES]

RUNNING: Final = {
    "query": "query?topic=orders&filter=/price+>+10&by=/price+DESC",
    "replay": "replay?topic=orders&speed=2X",
}
"""What pages are pictured with that show nothing before they are asked."""

STATEMENT: Final = "SELECT shop, count(*), max(price), NULL AS note FROM orders GROUP BY shop"

CHOSEN: Final = {
    "query": "&id=1",
    "clients": "?id=3",
    "topics": "?id=orders!json",
    "queues": "?id=shipping!json",
}
"""What is shown beside tables, where there is room."""

MAGNIFIED: Final = 320
"""The width in pixels that a screen of 1,280 has at a zoom of 400%."""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with running_shop(tmp_path_factory.mktemp("shop")) as running:
        yield running


@pytest.fixture
def console(browser: Browser, shop: Shop) -> Browser:
    browser.port = shop.admin.port
    return browser


def test_the_table_of_pages_is_read() -> None:
    assert "clients" in PATHS
    assert len(set(PATHS)) == len({key for _, _, key in PAGES}) == len(PAGES)
    assert len(PAGES) == (STATIC / "js/pages.js").read_text().count("load: ()")


@pytest.mark.long
@pytest.mark.parametrize(("path", "title", "key"), PAGES, ids=PATHS)
def test_a_page_is_for_everybody(
    console: Browser, path: str, title: str, key: str, pytestconfig: pytest.Config
) -> None:
    """Light and dark, on narrow screens, and magnified; what is wider scrolls by itself.

    Each page in each scheme in long runs; in others, every second page is dark.
    """
    console.open(path)
    console.shows(".dot.live")
    assert console.text("#main h1") == title
    assert console.text("nav a[aria-current=page]") == title
    console.until(lambda: console.driver.title.startswith(title))
    if pytestconfig.getoption("--long"):
        assert console.inaccessible() == []
        console.scheme("dark")
        assert console.inaccessible(["color-contrast"]) == []
    console.scheme(("dark", "light")[PATHS.index(path) % 2])
    for width in (NARROW, MAGNIFIED):
        console.size(width, 800)
        assert console.run("return document.documentElement.scrollWidth") <= width
    assert console.inaccessible(always=True) == []


PICTURED: Final = [path for path in PATHS[::-1] if path != "replication"]
"""In an order in which the overview has something to show. Replication takes two: test_mesh.py."""


@pytest.mark.parametrize("path", PICTURED)
def test_pages_have_pictures(
    console: Browser, shop: Shop, path: str, pictures: Path | None
) -> None:
    """For docs/console.md: `pytest tests/admin/console --screenshots docs/console`."""
    if pictures is None:
        pytest.skip("pictures are made with --screenshots")
    shop.publish(200)
    if path == "queues":
        shop.consumer.send({"c": "subscribe", "cid": "1", "t": "shipping", "opts": "max_backlog=3"})
    place = RUNNING.get(path, path)
    console.load(place + CHOSEN.get(path, ""))
    console.shows(".dot.live")
    if path == "sql":
        console.find("textarea").send_keys(STATEMENT, "\ue009\ue007")  # Control, Enter
    if path in RUNNING or path == "sql":
        console.shows("tr[data-id]")
    if path in CHOSEN:
        console.shows("aside")
    console.settle()
    console.picture(pictures / f"{path}.png", WIDE)
    console.go(place)
    console.until(lambda: console.count("aside") == 0)
    console.picture(pictures / f"{path}-narrow.png", NARROW, 844)


@ONLY_LONG  # test_query.py::test_a_topic_may_be_called_anything looks there, too
def test_names_are_never_markup(console: Browser) -> None:
    console.open("topics?find=script")
    console.shows("[role=gridcell]", ODD_NAME)
    console.find("tr[data-id]").click()
    console.shows("aside h2", ODD_NAME)
    console.shows("aside .values", ODD_NAME)


def test_topics_have_their_numbers(console: Browser, shop: Shop) -> None:
    shop.publish(37, "customers")
    console.open("topics?find=message_type=json+customers")
    console.shows("tr[data-id='customers!json']", "37")
    console.open("topics?tab=views")
    console.shows("tr[data-id='totals!json']", "orders")
    console.open("topics?tab=conflated")
    console.shows("tr[data-id='orders-slow!json']", "0.5s")


def test_the_overview_shows_the_last_hour(console: Browser, shop: Shop) -> None:
    console.open("overview")
    for title in (
        "Messages per second",
        "Memory",
        "Engine latency",
        "Connections",
    ):
        console.shows(f".chart[aria-label^='{title} within the last hour']")
    shop.publish(2_000)
    pattern = r"in: now \S+, maximum [1-9]"
    console.until(lambda: re.search(pattern, console.label(".chart[aria-label^='Messages']")))
    # a page that is loaded now knows it from the past
    console.load("overview")
    console.until(lambda: re.search(pattern, console.label(".chart[aria-label^='Messages']")))


def test_plots_have_the_range_that_is_chosen(console: Browser) -> None:
    console.open("overview?range=30d")
    pattern = r"Memory within the last 30 days\. resident: now [1-9]"
    console.until(lambda: re.search(pattern, console.label(".chart[aria-label^='Memory']")))
    console.run(
        "const field = document.querySelector('select.range'); field.value = '5m';"
        "field.dispatchEvent(new Event('change', {bubbles: true}))"
    )
    console.shows(".chart[aria-label^='Memory within the last 5 minutes. resident: now']")
    assert console.driver.current_url.endswith("?range=5m")


def test_a_client_that_does_not_read_is_seen_and_explained(console: Browser, shop: Shop) -> None:
    """The overview lists it, and leads to its page and to the manual."""
    console.logs_are_expected = True  # it goes, and what is asked about it then is not there
    with shop.admin.server.log_on("sleeper") as sleeper:
        sleeper.send({"c": "subscribe", "cid": "1", "t": "bulk"})
        for _ in range(300):
            shop.publisher.send({"c": "publish", "t": "bulk"}, b'{"x":"%s"}' % (b"x" * 100_000))
        console.open("overview")
        console.until(lambda: "client sleeper" in console.text(".findings"))
        assert console.inaccessible(always=True) == []
        console.scheme("dark")
        assert console.inaccessible(["color-contrast"]) == []
        link = "a[aria-label='What to do: client sleeper']"
        assert str(console.find(link).get_attribute("href")).endswith("operations.md#slow-clients")
        console.find(".findings a[href^='#/clients?sort=queue_max_latency']").click()
        console.shows("aside h2", "sleeper")
        console.shows("tr.marked", "sleeper")
        console.shows("aside .why.trouble", "This client")
        console.shows("aside .why", "wait here")
        assert console.inaccessible(always=True) == []
        assert console.count("aside .values tr") > 20
    console.driver.get(f"http://127.0.0.1:{console.port}/console/docs/operations.md#slow-clients")
    assert console.text("#slow-clients") == "Slow clients"
    console.open("overview")
    console.until(lambda: "client sleeper" not in console.text(".findings"))
    console.shows(".finding-sum", "checks")


def test_what_is_not_there_is_said(console: Browser) -> None:
    console.open("nowhere")
    console.says("There is no page nowhere.")
    console.open("clients?id=999999")
    console.shows("aside", "It is not connected")


def test_a_page_that_cannot_be_drawn_takes_nothing_else_with_it(console: Browser) -> None:
    console.open("overview")
    console.run("Map.prototype.values = () => { throw new Error('<b>odd</b>'); }")
    console.go("topics")
    console.shows("[role=alert]", "cannot be drawn: Error: <b>odd</b>")
    assert console.inaccessible() == []
    console.go("log")
    console.shows("#main h1", "Log")
    console.shows(".log", "00-0015")
    console.close_page()


def test_keys_lead_everywhere(console: Browser) -> None:
    console.open("overview")
    for path, title, key in PAGES:
        console.keys("g", key)
        console.shows("#main h1", title)
        assert console.driver.current_url.endswith(f"#/{path}")
    console.keys("?")
    console.shows("dialog[open]", "search on this page")
    console.keys("\ue00c")  # Escape
    console.until(lambda: console.count("dialog") == 0)
    console.keys("g", "c")
    console.shows("#main [data-search]")
    console.keys("/")
    console.until(lambda: console.run("return document.activeElement?.type") == "search")
    console.keys("packing")
    console.until(lambda: console.count("tr[data-id]") == 1)
    assert "find=packing" in console.driver.current_url
    console.run("document.querySelector('[role=grid]').focus()")
    console.keys("\ue015", "\ue007")  # down, Enter
    console.shows("aside h2", "packing-table")
    console.keys("\ue00c")
    console.until(lambda: console.count("aside") == 0)


def test_a_theme_is_chosen_and_kept(console: Browser) -> None:
    console.open("overview")
    ground = "return getComputedStyle(document.body).backgroundColor"
    light = console.run(ground)
    console.run(
        "const field = document.querySelector('.foot select'); field.value = 'dark';"
        "field.dispatchEvent(new Event('change', {bubbles: true}))"
    )
    console.until(lambda: console.run(ground) != light)
    dark = console.run(ground)
    console.driver.refresh()
    assert console.run(ground) == dark
    console.run("localStorage.clear()")
    console.close_page()


def test_a_queue_has_its_consumers_and_messages(console: Browser, shop: Shop) -> None:
    shop.consumer.send({"c": "subscribe", "cid": "1", "t": "shipping", "opts": "max_backlog=3"})
    console.open("queues?id=shipping!json")
    console.shows("aside h2", "shipping")
    console.shows("aside .plain-rows", "packing-table")
    console.shows("tr[data-id='shipping!json']", "20")
    row = "tr[data-id='shipping!json']"
    console.until(lambda: re.search(r"delivering|late", console.text(row)))
    console.shows(".chart[aria-label^='Messages of shipping!json per second']")
    shop.consumer.send({"c": "unsubscribe", "cid": "2", "sub_id": "all"})
    console.shows("tr.marked.bad", "no consumers")
    assert console.inaccessible() == []


def test_messages_of_a_queue_have_their_bodies(console: Browser) -> None:
    console.open("queues?id=shipping!json")
    console.find("aside .message summary").click()
    console.shows("aside .message[open] pre", '"id": ')
    assert console.inaccessible() == []


def test_messages_of_a_queue_are_purged_when_that_is_confirmed(console: Browser) -> None:
    console.open("queues?id=shipping!json")
    console.button("Purge", "aside").click()
    console.shows("dialog", "Purge shipping!json?")
    console.type("dialog input[name=filter]", "/id = 999999")
    assert console.inaccessible() == []
    console.button("Purge", "dialog").click()
    console.shows("dialog .good", "0 messages of shipping!json have been removed.")
    console.button("Close", "dialog").click()
    for label in ("Redrive", "Move"):
        console.button(label, "aside")


def test_the_configuration_is_a_picture_with_numbers(console: Browser, shop: Shop) -> None:
    console.open("graph")
    console.shows(".picture", "totals")
    console.shows(".picture", ODD_NAME[:12])
    shop.publish(500)
    console.until(lambda: "/s" in console.text(".picture"))
    console.button("All parts").click()
    console.shows(".picture", "log target")


def test_the_log_is_followed_and_searched(console: Browser, shop: Shop) -> None:
    console.open("log")
    console.shows(".log", "00-0015")
    with shop.admin.server.log_on("<b>somebody</b> new"):
        console.shows(".log", "<b>somebody</b> new")
    console.type("input[type=search]", "initialization completed")
    console.until(lambda: console.count(".log li") == 1)
    console.open("log?level=emergency")
    console.says("No line matches.")


def test_actions_say_what_came_of_them(console: Browser) -> None:
    console.open("actions?find=minidump")
    console.shows("tr[data-id]", "minidump")
    console.find("tr[data-id]").click()
    console.shows("aside", "It has not run since the server started.")


def test_replication_is_said_not_to_be_there(console: Browser) -> None:
    console.open("replication")
    console.says("This instance has no replication links.")


def test_a_page_that_is_left_asks_for_nothing(console: Browser, shop: Shop) -> None:
    """Browsers keep pages that have been left, and have six connections for a host.

    The page of the log has two of them.
    """
    for _ in range(4):
        console.load("log")
        console.shows(".dot.live")
        console.shows(".log", "00-0015")
        console.driver.get(f"http://127.0.0.1:{shop.admin.port}/amps")
        assert "instance" in console.text("body")
    console.driver.back()
    console.shows(".dot.live")
    console.shows(".log", "00-0015")
