"""The page for SQL: statements, their results, and subscriptions, as a browser shows them."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.admin.console.browser import Browser
from tests.admin.console.servers import Shop, running_shop
from tests.admin.console.test_query import cells, downloaded, downloads, publish
from tests.admin.support import running_admin

CONTROL, NO_CONTROL = "\ue009", "\ue000"
ENTER, ESCAPE, DOWN, BACKSPACE = "\ue007", "\ue00c", "\ue015", "\ue003"
STATEMENT = "return document.querySelector('textarea')?.value ?? ''"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with running_shop(tmp_path_factory.mktemp("shop")) as running:
        yield running


@pytest.fixture
def console(browser: Browser, shop: Shop) -> Iterator[Browser]:
    browser.port = shop.admin.port
    browser.open("sql")
    yield browser
    browser.run("localStorage.clear()")


def standing(console: Browser, text: str) -> None:
    console.shows("#main .page-head .standing", text)


def execute(console: Browser, statement: str) -> None:
    console.find("textarea").send_keys(CONTROL, "a", NO_CONTROL, statement, CONTROL, ENTER)


def test_a_statement_is_executed_and_linked_to(console: Browser, shop: Shop) -> None:
    publish(shop, "customers", b'{"id":1,"name":"Ada"}', b'{"id":2,"name":null,"note":"NULL"}')
    execute(console, "SELECT id, name, note FROM customers WHERE id < 3 ORDER BY id")
    standing(console, "Complete, 2 rows")
    assert cells(console) == ["1 1 Ada NULL", "2 2 NULL NULL"]
    assert console.count("td.null") == 2  # and the text NULL is none
    heads = console.run("return [...document.querySelectorAll('th')].map((one) => one.innerText)")
    assert heads[1:] == ["id bigint", "name text", "note text"]
    assert console.inaccessible() == []
    console.find("tr[data-id='1']").click()
    console.shows("aside .values", "Ada")
    assert console.inaccessible() == []
    console.driver.refresh()  # a link to a statement executes nothing
    console.until(lambda: "SELECT id" in console.run(STATEMENT))
    console.says("Write a statement")


def test_an_error_has_its_place(console: Browser) -> None:
    execute(console, "SELECT id\nFROM orderss")
    console.shows(".fault", 'relation "orderss" does not exist')
    console.shows(".fault", "Line 2:")
    assert console.text(".fault mark") == "orderss"
    assert console.inaccessible() == []
    execute(console, "SELECT id FROM orders WHERE id > 70000")
    standing(console, "Complete, 0 rows")
    assert console.count(".fault") == 0
    console.button("Explain").click()
    console.shows("pre.body", "Filter: /id > 70000")
    console.find("textarea").send_keys(" AND FROM")
    console.button("Explain").click()
    standing(console, "Failed")
    assert console.text(".fault mark") == "FROM"


def test_names_are_completed(console: Browser) -> None:
    field = console.find("textarea")

    def offered(name: str) -> bool:
        field.send_keys("x", BACKSPACE)  # a key and Backspace: the names may have come meanwhile
        return name in console.text(".offered")

    field.send_keys("SELECT * FROM order")
    console.until(lambda: offered("orders"))
    field.send_keys(DOWN, ENTER, " o WHERE o.pr")
    console.until(lambda: offered("price"))
    field.send_keys(DOWN, ENTER)
    console.until(lambda: console.run(STATEMENT) == "SELECT * FROM orders o WHERE o.price")
    field.send_keys(" LIM")
    console.shows(".offered li", "LIMIT")
    field.send_keys(ESCAPE)
    console.until(lambda: not console.text(".offered"))


def test_more_rows_come_when_they_are_asked_for(console: Browser) -> None:
    execute(console, "SELECT * FROM generate_series(1, 2500) AS numbers(n)")
    standing(console, "More rows, 1,000 rows")
    console.button("1,000 more").click()
    standing(console, "More rows, 2,000 rows")
    console.button("1,000 more").click()
    standing(console, "Complete, 2,500 rows")
    execute(console, "SELECT * FROM generate_series(1, 2500) AS numbers(n)")
    standing(console, "More rows, 1,000 rows")
    console.button("Stop").click()
    standing(console, "Stopped, 1,000 rows")


def test_a_statement_is_cancelled(console: Browser) -> None:
    execute(console, "SELECT count(*) FROM generate_series(1, 100000000000) AS numbers(n)")
    standing(console, "Running")
    console.button("Stop").click()
    standing(console, "Stopped")


def test_a_subscription_shows_changes(console: Browser, shop: Shop) -> None:
    publish(shop, "customers", b'{"id":7,"name":"Cy"}')
    execute(console, "SUBSCRIBE (SELECT id, name FROM customers WHERE id = 7)")
    standing(console, "Live, 1 row")
    publish(shop, "customers", b'{"id":7,"name":"Di"}')
    standing(console, "Live, 3 rows")
    assert [row.split()[-1] for row in cells(console)] == ["Di", "Cy", "Cy"]
    assert console.text("td.leaving")
    console.button("Stop").click()
    standing(console, "Stopped, 3 rows")
    publish(shop, "customers", b'{"id":7,"name":"Ed"}')
    console.button("Run").click()
    standing(console, "Live, 1 row")


def test_messages_are_published_after_a_question(console: Browser, shop: Shop) -> None:
    execute(console, "INSERT INTO customers (id, name) VALUES (99, 'Zoe')")
    console.shows("dialog[open] pre", "Zoe")
    assert console.inaccessible(always=True) == []
    console.button("Cancel", "dialog").click()
    console.until(lambda: console.count("dialog") == 0)
    console.button("Run").click()
    console.button("Publish", "dialog").click()
    console.shows("#main .good", "INSERT 0 1")
    execute(console, "SELECT name FROM customers WHERE id = 99")
    console.shows("tr[data-id]", "Zoe")


def test_rows_are_saved_and_statements_kept(console: Browser, shop: Shop, tmp_path: Path) -> None:
    downloads(console, tmp_path)
    execute(
        console,
        "SELECT 9007199254740993 AS big, 1.5::float8 AS part, NULL AS none, '' AS empty,"
        " 'a,\"b' AS text, true AS yes",
    )
    standing(console, "Complete, 1 row")
    console.button("CSV").click()
    lines = downloaded(tmp_path / "sql.csv")
    assert lines.splitlines()[1] == '9007199254740993,1.5,,"","a,""b",t'
    assert list(csv.reader([lines.splitlines()[0]])) == [
        ["big", "part", "none", "empty", "text", "yes"]
    ]
    console.button("JSON").click()
    found: list[dict[str, Any]] = json.loads(downloaded(tmp_path / "sql.json"))
    expected = {
        "big": "9007199254740993",
        "part": 1.5,
        "none": None,
        "empty": "",
        "text": 'a,"b',
        "yes": True,
    }
    assert found == [expected]
    console.driver.refresh()
    console.find("details summary").click()
    console.button("Clear")
    console.find(".statements button.code").click()
    console.until(lambda: "AS big" in console.run(STATEMENT))


def test_without_a_transport_the_page_says_how_to_get_one(browser: Browser, tmp_path: Path) -> None:
    with running_admin(tmp_path) as admin:
        browser.port = admin.port
        browser.open("sql")
        browser.shows("pre", "<Protocol>postgresql</Protocol>")
        assert browser.inaccessible() == []
        browser.close_page()
