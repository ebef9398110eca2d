"""Tables, as large as they become: what is found, how it is sorted, how little is drawn."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final

import pytest

from tests.admin.console.browser import Browser
from tests.admin.support import Admin, running_admin

SUBSCRIBERS: Final = 20
EACH: Final = 500
MAX_DRAWN: Final = 100
"""Rows that are in the page, of however many there are."""

DOWN, END, ESCAPE = "\ue015", "\ue010", "\ue00c"


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Admin]:
    """A server with 10,000 subscriptions."""
    with ExitStack() as stack:
        running = stack.enter_context(running_admin(tmp_path_factory.mktemp("many")))
        for number in range(SUBSCRIBERS):
            peer = stack.enter_context(running.server.log_on(f"reader-{number}"))
            with peer.at_once():
                for each in range(EACH):
                    topic = f"topic-{number * EACH + each:05d}"
                    peer.send({"c": "subscribe", "cid": str(each), "t": topic})
        yield running


@pytest.fixture
def console(browser: Browser, admin: Admin) -> Browser:
    browser.port = admin.port
    return browser


def first_cells(console: Browser, column: int) -> list[str]:
    """The texts of the first rows in a column."""
    found: list[str] = console.run(
        "return [...document.querySelectorAll('tr[data-id]')]"
        ".slice(0, 3).map((row) => row.cells[arguments[0]].innerText)",
        column,
    )
    return found


def test_of_ten_thousand_rows_those_are_drawn_that_are_seen(console: Browser) -> None:
    console.open("subscriptions")
    console.shows(".found", "10,000 subscriptions")
    assert console.find("[role=grid]").get_attribute("aria-rowcount") == "10001"
    assert 20 < console.count("tr[data-id]") < MAX_DRAWN
    console.run("document.querySelector('[role=grid]').scrollTop = 1e9")
    console.until(lambda: console.count("tr[aria-rowindex='10001']") == 1)
    assert console.count("tr[data-id]") < MAX_DRAWN
    console.run("document.querySelector('[role=grid]').scrollTop = 0")
    console.until(lambda: console.count("tr[aria-rowindex='2']") == 1)


def test_scrolling_makes_no_rows(console: Browser) -> None:
    """A row of the page shows one entry and then another: that is what keeps frames short."""
    console.open("subscriptions")
    console.shows(".found", "10,000")
    console.run("document.querySelector('[role=grid]').scrollTop = 32000")
    console.until(lambda: console.count("tr[aria-rowindex='1005']") == 1)
    console.run(
        "window.known = new Set(document.querySelectorAll('tr[data-id]')); window.made = 0;"
        "new MutationObserver((changes) => changes.forEach((change) => "
        "change.addedNodes.forEach((node) => { made += Number(!known.has(node)); })"
        ")).observe(document.querySelector('tbody'), {childList: true, subtree: true})"
    )
    for top in (32_320, 64_000, 128_000):
        console.run("document.querySelector('[role=grid]').scrollTop = arguments[0]", top)
        console.shows(f"tr[aria-rowindex='{top // 32 + 5}']")
    assert console.run("return made") == 0


def test_rows_are_found_and_sorted_and_that_can_be_linked_to(console: Browser) -> None:
    console.open("subscriptions")
    console.shows(".found", "10,000")
    console.type("[data-search]", "topic-00499")
    console.shows(".found", "1 of 10,000")
    assert first_cells(console, 2) == ["topic-00499"]
    console.open("subscriptions?find=topic-000&sort=topic&order=desc")
    console.shows(".found", "100 of 10,000")
    console.until(lambda: first_cells(console, 2)[0] == "topic-00099")
    console.find("th[aria-sort=descending] button").click()
    console.until(lambda: first_cells(console, 2)[0] == "topic-00000")
    assert "order=asc" in console.driver.current_url
    console.shows("th[aria-sort=ascending]", "Topic")
    console.open("subscriptions?find=zebra")
    console.says("No subscription matches.")


def test_the_rows_of_a_field_are_found(console: Browser) -> None:
    console.open("clients?find=client_name=reader-7")
    console.shows(".found", "1 of 20 clients")
    console.find("tr[data-id]").click()
    console.find("aside a.button").click()
    console.shows(".found", "500 of 10,000")
    console.shows("#main h1", "Subscriptions")


def test_keys_go_through_all_rows(console: Browser) -> None:
    console.open("subscriptions?sort=topic")
    console.shows(".found", "10,000")
    console.run("document.querySelector('[role=grid]').focus()")
    console.keys(DOWN, DOWN)
    active = "return document.getElementById(document.querySelector('[role=grid]').getAttribute("
    active += "'aria-activedescendant'))?.getAttribute('aria-rowindex')"
    console.until(lambda: console.run(active) == "3")
    console.keys(END)
    console.until(lambda: console.run(active) == "10001")
    console.keys("\ue007")  # Enter
    console.shows("aside .values", "topic-09999")
    console.keys(ESCAPE)
    console.until(lambda: console.count("aside") == 0)


def test_what_is_paused_stays(console: Browser, admin: Admin) -> None:
    console.open("clients")
    console.shows(".found", "20 clients")
    console.button("Pause").click()
    with admin.server.log_on("late"):
        admin.comes("/amps/instance/transports/any-tcp/client_count", "21")
        console.shows(".found", "20 of 21 clients")
        console.button("Pause").click()
        console.shows(".found", "21 clients")
        console.until(lambda: console.count("tr[data-id]") == 21)
