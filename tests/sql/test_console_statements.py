"""`/console/sql`: statements over HTTP, as the console executes them."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from tests.admin.support import Reply, ask, read
from tests.security.users import MODULES, write_users
from tests.sql.support import EVERYTHING, ORDERS, SqlServer, sql_server, user
from tests.support.server import free_port
from tests.support.waiting import WAIT_SECONDS, comes_true, wait_until

PATH: Final = "/console/sql"
ADMIN: Final = """
<Admin>
  <InetAddr>{address}:{port}</InetAddr><Interval>1s</Interval>
  <WWWAuthenticate>Basic realm="x"</WWWAuthenticate>{elements}
</Admin>
"""
ENDLESS: Final = "SELECT count(*) FROM generate_series(1, 100000000000) AS numbers(n)"

USERS = (
    user("ann", EVERYTHING, admin='{ topic = "^/console", read = true }')
    + user(
        "bob",
        '{ topic = "orders", read = "/qty > 400" }',
        admin='{ topic = "^/console", read = true }',
    )
    + user("carol", EVERYTHING)
)


class Console(NamedTuple):
    """A server with a transport for SQL and an admin interface.

    Attributes:
        sql: the server.
        port: the port of the admin interface.
    """

    sql: SqlServer
    port: int

    def post(self, path: str, body: object, **headers: str) -> Reply:
        """Send a request, and read the answer to its end."""
        with self.begin(path, body, **headers) as connection:
            return read(connection)

    @contextmanager
    def begin(
        self, path: str, body: object, **headers: str
    ) -> Iterator[http.client.HTTPConnection]:
        """Send a request."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_SECONDS)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        try:
            connection.request("POST", path, content, named)
            yield connection
        finally:
            connection.close()

    def lines(self, statement: str, **headers: str) -> list[dict[str, Any]]:
        """Execute statements, and give all lines but the first and the last."""
        reply = self.post(PATH, {"statement": statement}, **headers)
        assert reply.status == 200, reply.text
        found = [json.loads(line) for line in reply.text.splitlines() if line]
        assert found[-1] == {"end": True}
        return [line for line in found if line.keys() & {"columns", "rows", "tag", "error"}]

    def error(self, statement: str, **headers: str) -> dict[str, Any]:
        """Execute a statement that fails, and give its error."""
        (line,) = self.lines(statement, **headers)
        error: dict[str, Any] = line["error"]
        return error

    @contextmanager
    def stream(self, statement: str, rows: int = 1000) -> Iterator[Stream]:
        """Execute a statement, and read its lines one after the other."""
        with self.begin(PATH, {"statement": statement, "rows": rows}) as connection:
            yield Stream(connection.getresponse())


class Stream:
    """The answer to a request, as it comes."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self._response = response
        self.id: str = self.next("id")

    def next(self, key: str) -> Any:
        """The next line with a key: its value."""
        while line := self._response.readline():
            found = json.loads(line) if line.strip() else {}
            if key in found:
                return found[key]
        raise EOFError(key)


@contextmanager
def console(
    directory: Path, admin: str = "", elements: str = "", address: str = "127.0.0.1", **options: Any
) -> Iterator[Console]:
    port = free_port()
    section = ADMIN.format(address=address, port=port, elements=admin)
    with sql_server(directory, elements=section + elements, **options) as sql:
        yield Console(sql, port)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    with console(tmp_path_factory.mktemp("console")) as running:
        running.sql.publish("orders", *ORDERS)
        yield running


def test_rows_are_texts_with_types(server: Console) -> None:
    text = "SELECT id, price, live, NULL AS none, ARRAY[1, 2] AS list FROM orders WHERE id = 3"
    columns, rows, tag = server.lines(text)
    assert columns["columns"] == [
        {"name": "id", "type": "bigint"},
        {"name": "price", "type": "double precision"},
        {"name": "live", "type": "boolean"},
        {"name": "none", "type": "text"},
        {"name": "list", "type": "integer[]"},
    ]
    assert rows["rows"] == [["3", "4.5", "t", None, "{1,2}"]]
    assert tag == {"tag": "SELECT 1"}


def test_an_error_has_its_place(server: Console) -> None:
    error = server.error("SELECT id,\n nothing FROM orders")
    assert (error["code"], error["position"]) == ("42703", 13)
    error = server.error("SUBSCRIBE (SELECT nothing FROM orders)")
    assert (error["code"], error["position"]) == ("42703", 19)


def test_statements_write_as_the_user_may(server: Console) -> None:
    assert server.lines("INSERT INTO prices (symbol, bid) VALUES ('X', 1)") == [
        {"tag": "INSERT 0 1"}
    ]
    assert server.lines("SELECT bid FROM prices WHERE symbol = 'X'")[1]["rows"] == [["1"]]
    refused = server.error("COPY prices (symbol) FROM STDIN")
    assert refused["code"] == "57014"
    assert "there are no data here" in refused["message"]


def test_more_rows_come_when_they_are_asked_for(server: Console) -> None:
    with server.stream("SELECT n FROM generate_series(1, 5) AS numbers(n)", 2) as stream:
        assert stream.next("rows") == [["1"], ["2"]]
        assert stream.next("more")
        assert server.post(f"{PATH}/more", {"id": stream.id}).status == 204
        assert stream.next("rows") == [["3"], ["4"]]
        assert stream.next("more")
        assert server.post(f"{PATH}/more", {"id": stream.id}).status == 204
        assert stream.next("rows") == [["5"]]
        assert stream.next("tag") == "SELECT 5"
        assert stream.next("end")
    assert server.post(f"{PATH}/more", {"id": stream.id}).status == 404


def test_large_results_are_sent_as_they_are_read(server: Console) -> None:
    text = "SELECT n, repeat('x', 1000) FROM generate_series(1, 60000) AS numbers(n)"
    with server.stream(text, 10_000) as stream:
        for _ in range(5):
            stream.next("more")
            server.post(f"{PATH}/more", {"id": stream.id})
        assert stream.next("tag") == "SELECT 60000"


def test_a_subscription_sends_changes(server: Console) -> None:
    text = " -- all of them\nsubscribe (SELECT id, qty FROM orders WHERE id = 1);"
    with server.stream(text, 1) as stream:
        assert [column["name"] for column in stream.next("columns")][2:] == ["id", "qty"]
        assert [row[1:] for row in stream.next("rows")] == [["1", "1", "10"]]
        server.sql.publish("orders", {"id": 1, "qty": 7})
        found = stream.next("rows")
        while len(found) < 2:
            found += stream.next("rows")
        assert [row[1:] for row in found] == [["-1", "1", "10"], ["1", "1", "7"]]
        assert server.post(f"{PATH}/cancel", {"id": stream.id}).status == 204
        assert stream.next("error")["code"] == "57014"
        assert stream.next("end")


def test_a_statement_is_cancelled(server: Console) -> None:
    with server.stream(ENDLESS) as stream:
        assert server.post(f"{PATH}/cancel", {"id": stream.id}).status == 204
        assert stream.next("error")["code"] == "57014"


def clients(server: Console) -> int:
    (count,) = server.lines(
        "SELECT count(*) FROM amps_stats.clients WHERE client_name LIKE 'console-%'"
    )[1]["rows"]
    return int(count[0])


def test_a_statement_ends_when_its_requester_goes_away(server: Console) -> None:
    with server.stream(ENDLESS), server.stream("SUBSCRIBE TO orders"):
        wait_until(lambda: clients(server) >= 2, "the clients are not shown")
    assert comes_true(lambda: clients(server) <= 1)


def test_no_more_statements_than_may_run(tmp_path: Path) -> None:
    with console(tmp_path) as server, contextlib.ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(server.stream("SUBSCRIBE TO orders"))
        assert server.error("SELECT 1")["code"] == "53300"
        stack.close()
        assert comes_true(lambda: "columns" in server.lines("SELECT 1")[0])


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"[]", 400),
        (b'{"statement": 1}', 400),
        (b'{"statement": "SELECT 1", "rows": 0}', 400),
        (b'{"statement": "SELECT 1", "rows": 10001}', 400),
        (b'{"statement": "SELECT 1", "all": true}', 400),
        (b'{"statement": "\xff"}', 400),
        (b'{"statement": "%s"}' % (b"x" * 70_000), 413),
    ],
)
def test_what_is_no_statement_is_refused(server: Console, body: bytes, status: int) -> None:
    assert server.post(PATH, body).status == status


@pytest.mark.parametrize("text", ["\0", "\t" * 30_000, "(" * 30_000, "/*" * 30_000, "SELECT '"])
def test_odd_statements_get_an_answer(server: Console, text: str) -> None:
    assert server.lines(text)[-1].keys() & {"tag", "error"}
    assert server.lines("SELECT 1")[1]["rows"] == [["1"]]


def test_pages_of_other_sites_execute_nothing(server: Console) -> None:
    insert = {"statement": "INSERT INTO prices (symbol, bid) VALUES ('EVIL', 1)"}
    headers: list[dict[str, str]] = [
        {"Origin": "http://evil.test"},
        {"User_Agent": "Mozilla/5.0"},
        {"User_Agent": "Mozilla/5.0", "Referer": "http://evil.test/"},
        {"Sec_Fetch_Site": "cross-site", "X_Requested_With": "console"},
    ]
    for each in headers:
        for path in ("", "/more", "/cancel"):
            assert server.post(PATH + path, insert, **each).status == 403, each
    assert ask(server.port, PATH).status == 405
    assert "rows" not in server.lines("SELECT 1 FROM prices WHERE symbol = 'EVIL'")[1]


def basic(user: str) -> dict[str, str]:
    coded = base64.b64encode(f"{user}:{user}".encode()).decode()
    return {"Authorization": f"Basic {coded}"}


def test_users_may_do_what_they_may_over_sql(tmp_path: Path) -> None:
    write_users(tmp_path, USERS)
    paths = "<AnonymousPaths>^/console</AnonymousPaths>"
    for admin in ("", paths):
        directory = tmp_path / f"server{bool(admin)}"
        directory.mkdir()
        write_users(directory, USERS)
        with console(directory, admin, MODULES) as server:
            server.sql.publish("orders", *ORDERS, user_id="ann", pw="ann")
            count = "SELECT count(*), count(price) FROM orders"
            assert server.lines(count, **basic("ann"))[1]["rows"] == [["50", "50"]]
            assert server.lines(count, **basic("bob"))[1]["rows"] == [["9", "9"]]
            insert = "INSERT INTO orders (id) VALUES (1000)"
            assert server.lines(insert, **basic("ann")) == [{"tag": "INSERT 0 1"}]
            assert server.error(insert, **basic("bob"))["code"] == "42501"
            assert server.error("SELECT * FROM prices", **basic("bob"))["code"] == "42P01"
            body = {"statement": "SELECT 1"}
            assert server.post(PATH, body, **basic("carol")).status == 403
            assert server.post(PATH, body).status == 401


def test_a_statement_is_its_users(tmp_path: Path) -> None:
    write_users(tmp_path, USERS)
    with console(tmp_path, elements=MODULES) as server:
        body = {"statement": "SUBSCRIBE TO orders"}
        with server.begin(PATH, body, **basic("ann")) as connection:
            stream = Stream(connection.getresponse())
            assert server.post(f"{PATH}/cancel", {"id": stream.id}, **basic("bob")).status == 404
            assert server.post(f"{PATH}/cancel", {"id": stream.id}, **basic("ann")).status == 204
            assert stream.next("error")["code"] == "57014"


NO_LOGON: Final = """
<Authentication><Module>amps-default-authentication-module</Module></Authentication>
"""


@pytest.mark.parametrize(
    ("admin", "transport", "options", "reason"),
    [
        (NO_LOGON, "", {}, "its Authentication is not that of Admin"),
        ("", NO_LOGON, {}, ""),
        (NO_LOGON, NO_LOGON, {"address": "0.0.0.0"}, "other hosts cannot reach it"),
    ],
    ids=["open admin", "open transport", "exposed admin"],
)
def test_nobody_gets_what_the_transport_would_refuse(
    admin: str, transport: str, options: dict[str, str], reason: str, tmp_path: Path
) -> None:
    write_users(tmp_path, USERS)
    modules = MODULES.partition("<Entitlement>")[0]
    with console(tmp_path, admin, modules, transport_elements=transport, **options) as server:
        headers = {} if admin else basic("ann")
        session = ask(server.port, "/console/session.json", **headers).json
        assert session["sql"] == ("" if reason else "sql")
        assert reason in session["sql_refusal"]
        if reason:
            assert server.post(PATH, {"statement": "SELECT 1"}, **headers).status == 404


def test_limits_of_the_transport_hold(tmp_path: Path) -> None:
    limits = "<SQL><StatementTimeout>200ms</StatementTimeout></SQL>"
    with console(tmp_path, elements=limits) as server:
        assert server.error(ENDLESS)["code"] == "57014"
        disable = "/amps/administrator/transports/sql/disable"
        with server.stream("SUBSCRIBE TO orders") as stream:
            assert ask(server.port, disable, "POST").status == 200
            assert stream.next("error")["code"] == "57P01"
            assert stream.next("end")
        assert server.error("SELECT 1")["code"] == "28000"
