"""Logons of clients of Flight SQL: passwords, tokens, TLS, entitlement, and how they are shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import adbc_driver_manager
import pytest
from adbc_driver_flightsql import DatabaseOptions
from pyarrow import flight

from tests.admin.support import ask
from tests.security.test_http_services import self_signed
from tests.security.users import MODULES, write_users
from tests.sql.flight.support import FlightServer, basic, bearer, flight_server, query_command
from tests.sql.support import ANN, ORDERS, PRICES, user
from tests.support.server import free_port
from tests.support.waiting import comes_true

USERS = (
    ANN
    + user(
        "bob",
        '{ topic = "orders", read = "/symbol = \'IBM\'", select = "-/price" }',
        '{ topic = "positions", read = false }',
    )
    + user("carol", logon=False)
)

ACTIONS = 5


def publish(server: FlightServer) -> None:
    server.sql.publish("orders", *ORDERS, user_id="ann", pw="ann")
    server.sql.publish("prices", *PRICES, user_id="ann", pw="ann")


def names_of(connection: Any) -> list[str]:
    """The tables that a connection sees."""
    return sorted(
        table["table_name"]
        for catalogue in connection.adbc_get_objects(depth="tables").read_all().to_pylist()
        for schema in catalogue["catalog_db_schemas"]
        for table in schema["db_schema_tables"]
    )


def test_users_see_what_they_may_read(tmp_path: Path) -> None:
    with flight_server(tmp_path, users=USERS) as server:
        publish(server)
        with server.connect("ann", "ann") as connection:
            assert names_of(connection) == ["orders", "positions", "prices"]
        with server.connect("bob", "bob") as connection, connection.cursor() as cursor:
            assert names_of(connection) == ["orders"]
            assert "price" not in connection.adbc_get_table_schema("orders").names
            cursor.execute("SELECT count(*), min(symbol), max(symbol) FROM orders")
            assert cursor.fetchall() == [(25, "IBM", "IBM")]
            cursor.execute("SELECT _body FROM orders WHERE id = 2")
            assert cursor.fetchall() == [('{"id":2,"symbol":"IBM","qty":20,"live":false}',)]
            for query, message in (
                ("SELECT price FROM orders", 'column "price" does not exist'),
                ("SELECT 1 FROM prices", 'relation "prices" does not exist'),
                ("SUBSCRIBE TO prices", 'relation "prices" does not exist'),
                ("DELETE FROM orders", "42501"),
            ):
                with pytest.raises(adbc_driver_manager.Error, match=message):
                    cursor.execute(query)


def test_wrong_credentials_are_refused_and_logged(tmp_path: Path) -> None:
    with flight_server(tmp_path, users=USERS) as server:
        for user, password in (("ann", "wrong"), ("nobody", "x"), ("carol", "carol")):
            with pytest.raises(adbc_driver_manager.Error, match="authentication failed for user"):
                server.connect(user, password)
        with pytest.raises(adbc_driver_manager.Error, match="a user name and a password are"):
            server.query("SELECT 1")
        assert server.sql.server.logs("nobody")
        for header in (b"Basic ?", b"Basic /w==", b"Digest x", b"Bearer stolen", b"Basic"):
            options = flight.FlightCallOptions(headers=[(b"authorization", header)])
            with server.raw() as client, pytest.raises(flight.FlightUnauthenticatedError):
                client.list_actions(options)


def test_a_token_stands_for_the_user_on_other_connections_until_the_session_is_closed(
    tmp_path: Path,
) -> None:
    with flight_server(tmp_path, users=USERS) as server:
        with server.raw() as client:
            _, header = client.authenticate_basic_token("ann", "ann")
        token = header.decode().removeprefix("Bearer ")
        with server.raw() as other:
            assert len(other.list_actions(bearer(token))) == ACTIONS
            assert server.sql.server.logs("by the token of a logon")
            list(other.do_action(flight.Action("CloseSession", b""), bearer(token)))
            with pytest.raises(flight.FlightUnauthenticatedError, match="has expired"):
                other.list_actions(bearer(token))


def test_users_that_share_a_connection_have_sessions_of_their_own(tmp_path: Path) -> None:
    with flight_server(tmp_path, users=USERS) as server, server.raw() as client:
        publish(server)
        command = flight.FlightDescriptor.for_command(query_command("SELECT count(*) FROM orders"))
        for user, count in (("ann", 50), ("bob", 25), ("ann", 50)):
            info = client.get_flight_info(command, basic(user, user))
            reader = client.do_get(info.endpoints[0].ticket, basic(user, user))
            assert reader.read_all().column(0).to_pylist() == [count]
        assert server.sql.server.logs("has logged on from", 4)  # two of them publish


def test_a_connection_is_closed_after_failed_logons(tmp_path: Path) -> None:
    with flight_server(tmp_path, users=USERS) as server, server.raw() as client:
        for attempt in range(4):
            with pytest.raises(flight.FlightUnauthenticatedError):
                client.list_actions(basic("ann", f"wrong{attempt}"))
        assert len(client.list_actions(basic("ann", "ann"))) == ACTIONS  # connected again


def test_connections_are_secured_by_tls(tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path, "localhost")
    elements = f"<Certificate>{certificate}</Certificate><PrivateKey>{key}</PrivateKey>"
    write_users(tmp_path, USERS)
    with flight_server(
        tmp_path, elements=MODULES, transport_elements=elements, scheme="grpc+tls"
    ) as server:
        trusted = {
            DatabaseOptions.TLS_ROOT_CERTS.value: certificate.read_text(),
            DatabaseOptions.TLS_OVERRIDE_HOSTNAME.value: "localhost",
        }
        with server.connect("ann", "ann", **trusted) as connection:
            assert "orders" in names_of(connection)
        with pytest.raises(adbc_driver_manager.Error):
            server.connect("ann", "ann")
        plain = server._replace(scheme="grpc")
        with pytest.raises(adbc_driver_manager.Error):
            plain.connect("ann", "ann")


def test_clients_are_shown_with_the_others(tmp_path: Path) -> None:
    port = free_port()
    elements = f"<Admin><InetAddr>127.0.0.1:{port}</InetAddr><Interval>1s</Interval></Admin>"
    with flight_server(tmp_path, elements=elements) as server:
        options = {f"{DatabaseOptions.RPC_CALL_HEADER_PREFIX.value}application_name": "desk"}
        with server.connect(**options) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            assert cursor.fetchall() == [(1,)]
            assert comes_true(lambda: "desk-" in ask(port, "/amps/instance/clients.json").text)
            assert comes_true(lambda: '"rows_out":"1"' in ask(port, "/amps/instance/sql.json").text)
        assert server.sql.server.logs("client[desk-1] disconnected")
