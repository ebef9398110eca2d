"""Logons by SCRAM-SHA-256: psql, psycopg, asyncpg, and clients that break the rules."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import asyncpg
import psycopg
import pytest

from tests.security.test_http_services import self_signed
from tests.security.users import MODULES, hashed, scram_of, write_users
from tests.sql.postgres import support
from tests.sql.postgres.support import message, text
from tests.sql.support import SqlServer, sql_server

USERS: Final = f"""
[users.ann]
password = ["{hashed("ann")}", "{scram_of("ann")}"]
logon = true

[users.dora]
password = ["{hashed("dora")}", "{scram_of("dora")}"]
logon = false

[users.eli]
password = ["{hashed("eli")}", "{scram_of("eli")}"]
logon = true

[users.bob]
password = "BOB"
logon = true
"""

PLAIN: Final = "SCRAM-SHA-256"
PLUS: Final = "SCRAM-SHA-256-PLUS"


@pytest.fixture(scope="module")
def sql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlServer]:
    directory = tmp_path_factory.mktemp("scram")
    write_users(directory, USERS)
    with sql_server(directory, elements=MODULES) as server:
        yield server


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlServer]:
    """A server whose clients use TLS, and may bind their logons to it."""
    directory = tmp_path_factory.mktemp("scram")
    write_users(directory, USERS)
    certificate, key = self_signed(directory, "localhost")
    elements = f"<Certificate>{certificate}</Certificate><PrivateKey>{key}</PrivateKey>"
    with sql_server(
        directory, elements=MODULES, transport_type="tcps", transport_elements=elements
    ) as server:
        yield server


def log_on(sql: SqlServer, **terms: str) -> None:
    with sql.connect(**terms) as connection:
        assert connection.execute("SELECT current_user").fetchone() == (terms["user"],)


def test_drivers_log_on(sql: SqlServer) -> None:
    log_on(sql, user="ann", password="ann", require_auth="scram-sha-256")
    assert sql.psql("SELECT current_user", user="ann", password="ann").stdout == "ann\n"

    async def run() -> object:
        connection = await asyncpg.connect(
            host="127.0.0.1", port=sql.port, user="ann", password="ann", database="any"
        )
        try:
            return await connection.fetchval("SELECT 1")
        finally:
            await connection.close()

    assert asyncio.run(run()) == 1
    assert sql.server.logs("User 'ann' has logged on")


def test_a_user_without_a_verifier_gives_the_password(sql: SqlServer) -> None:
    log_on(sql, user="bob", password="bob", require_auth="password")
    with pytest.raises(psycopg.OperationalError, match="authentication failed"):
        log_on(sql, user="bob", password="ann")


def test_a_user_who_may_not_log_on_is_told_so(sql: SqlServer) -> None:
    with pytest.raises(psycopg.OperationalError, match="no permission to log on"):
        log_on(sql, user="dora", password="dora")


@pytest.mark.parametrize("user", ["ann", "nobody"])
def test_wrong_passwords_and_unknown_users(sql: SqlServer, user: str) -> None:
    with pytest.raises(psycopg.OperationalError, match=f'failed for user "{user}"') as refused:
        log_on(sql, user=user, password="x", require_auth="scram-sha-256")
    assert "wrong user or password" in str(refused.value)


def test_logons_are_bound_to_tls(secured: SqlServer) -> None:
    terms = {"user": "ann", "password": "ann", "sslmode": "require"}
    log_on(secured, **terms, channel_binding="require", require_auth="scram-sha-256")
    log_on(secured, **terms, channel_binding="disable")
    shown = secured.psql("SELECT 7", user="ann", password="ann", PGCHANNELBINDING="require")
    assert shown.stdout == "7\n"
    shown = secured.psql("SELECT 7", user="bob", password="bob", PGCHANNELBINDING="require")
    assert "channel binding required" in shown.stderr

    async def run() -> object:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = await asyncpg.connect(
            host="127.0.0.1",
            port=secured.port,
            user="ann",
            password="ann",
            database="any",
            ssl=context,
        )
        try:
            return await connection.fetchval("SELECT 1")
        finally:
            await connection.close()

    assert asyncio.run(run()) == 1


class ScramClient:
    """A client that does what a test says, step by step.

    Args:
        sql: the server.
        user: the name of the user.
        tls: whether the connection is upgraded to TLS.
    """

    def __init__(self, sql: SqlServer, user: str, *, tls: bool = False) -> None:
        self.connection = socket.create_connection(("127.0.0.1", sql.port), 30)
        self.certificate = b""
        if tls:
            self.connection.sendall(support.SSL_REQUEST)
            assert self.connection.recv(1) == b"S"
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            secured = context.wrap_socket(self.connection)
            self.certificate = secured.getpeercert(binary_form=True) or b""
            self.connection = secured
        self.mechanisms = self.step(support.startup(user=user))[0][1]

    def step(self, data: bytes) -> list[tuple[str, bytes]]:
        """Send a message, and give the answers."""
        self.connection.sendall(data)
        received = b""
        while not _is_complete(received):
            more = self.connection.recv(10_000)
            if not more:
                break
            received += more
        return support.split(received)

    def begin(self, first: str = "n,,n=,r=abc", mechanism: str = PLAIN) -> list[tuple[str, bytes]]:
        """Send the first message."""
        octets = first.encode("latin-1")
        return self.step(message("p", text(mechanism), support.int32(len(octets)), octets))

    def prove(
        self, first: str, challenge: bytes, password: str, binding: bytes
    ) -> list[tuple[str, bytes]]:
        """Send the proof of a password, with what the channel is bound to."""
        server_first = challenge[4:].decode()
        nonce, salt, iterations = (part[2:] for part in server_first.split(","))
        salted = hashlib.pbkdf2_hmac(
            "sha256", password.encode(), base64.b64decode(salt), int(iterations)
        )
        client_key = hmac.digest(salted, b"Client Key", "sha256")
        final = f"c={base64.b64encode(binding).decode()},r={nonce}"
        bare = first.split(",", 2)[2]
        signed = f"{bare},{server_first},{final}".encode()
        signature = hmac.digest(hashlib.sha256(client_key).digest(), signed, "sha256")
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        return self.step(message("p", f"{final},p={base64.b64encode(proof).decode()}".encode()))

    def log_on(
        self, password: str, first: str = "n,,n=,r=abc", binding: bytes = b"n,,", **terms: str
    ) -> str:
        """Take both steps; give the types of the last answers."""
        (kind, challenge), *_ = self.begin(first, **terms)
        if kind == "E":
            return kind
        answers = self.prove(first, challenge, password, binding)
        self.connection.close()
        return "".join(kind for kind, _ in answers)


def _is_complete(received: bytes) -> bool:
    """Whether the server has said all of one step: an error, a request, or that it is ready."""
    while len(received) >= 5:
        size = 1 + int.from_bytes(received[1:5], "big")
        if len(received) < size:
            return False
        is_request = received[:1] == b"R" and received[5:9] not in (b"\0\0\0\0", b"\0\0\0\x0c")
        if received[:1] in b"EZ" or is_request:
            return True
        received = received[size:]
    return False


def test_the_steps_of_a_client_without_a_library(sql: SqlServer, secured: SqlServer) -> None:
    client = ScramClient(sql, "ann")
    assert client.mechanisms[4:] == text(PLAIN) + b"\0"
    assert client.log_on("ann").startswith("RRS")
    client = ScramClient(secured, "ann", tls=True)
    assert client.mechanisms[4:] == text(PLUS) + text(PLAIN) + b"\0"
    hashed_certificate = hashlib.sha256(client.certificate).digest()
    header = "p=tls-server-end-point,,"
    kinds = client.log_on(
        "ann", header + "n=,r=abc", header.encode() + hashed_certificate, mechanism=PLUS
    )
    assert kinds.startswith("RRS")


@pytest.mark.parametrize(
    ("first", "binding", "mechanism"),
    [
        ("y,,n=,r=abc", b"y,,", PLAIN),  # a man in the middle has removed SCRAM-SHA-256-PLUS
        ("n,,n=,r=abc", b"y,,", PLAIN),
        ("p=tls-server-end-point,,n=,r=abc", b"p=tls-server-end-point,,another", PLUS),
        ("p=tls-server-end-point,,n=,r=abc", b"p=tls-server-end-point,,", PLUS),
        ("p=tls-unique,,n=,r=abc", b"p=tls-unique,,", PLUS),
        ("p=tls-server-end-point,,n=,r=abc", b"n,,", PLAIN),
        ("n,,n=,r=abc", b"n,,", PLUS),
        ("n,,n=,r=abc", b"n,,", "SCRAM-SHA-1"),
    ],
)
def test_wrong_channel_bindings_are_refused(
    secured: SqlServer, first: str, binding: bytes, mechanism: str
) -> None:
    client = ScramClient(secured, "eli", tls=True)
    assert client.log_on("eli", first, binding, mechanism=mechanism) == "E"


def test_the_steps_do_not_tell_which_users_exist(sql: SqlServer) -> None:
    answers = []
    for user in ("ann", "nope", "nope", "dora"):
        client = ScramClient(sql, user)
        (_, challenge), *rest = client.begin()
        assert not rest
        _, salt, iterations = challenge[4:].split(b",")
        (kind, error), *_ = client.prove("n,,n=,r=abc", challenge, "x", b"n,,")
        client.connection.close()
        shape = (client.mechanisms, kind, error.replace(user.encode(), b""), iterations, len(salt))
        answers.append((shape, salt))
    shapes = [shape for shape, _ in answers]
    assert shapes == shapes[:1] * 4
    assert answers[1] == answers[2]
    assert answers[1][1] != answers[0][1]


def test_malformed_messages_end_the_connection(sql: SqlServer) -> None:
    for first in ("", "n,,", "n,a=eli,n=,r=x", "\xff\0", "n,,n=,r=" + "x" * 5000):
        assert ScramClient(sql, "eli").begin(first)[0][0] == "E"
    for final in (b"", b"c=biws,r=abc,p=x", b"c=biws,r=\xff,p=" + b"A" * 44):
        client = ScramClient(sql, "eli")
        client.begin()
        assert client.step(message("p", final))[0][0] == "E"
    assert "Traceback" not in sql.server.log()


def test_failures_are_counted_and_audited(tmp_path: Path) -> None:
    write_users(tmp_path, USERS)
    with sql_server(tmp_path, elements=MODULES) as sql:
        for _ in range(10):
            assert ScramClient(sql, "ann").log_on("x") == "E"
        assert sql.server.logs("25-0063")
        client = ScramClient(sql, "ann")
        (kind, error), *_ = client.begin()
        assert kind == "E"
        assert b"too many failed logons" in error
        assert ScramClient(sql, "eli").log_on("eli").startswith("RRS")
        with sql.server.connect() as peer:
            refused = peer.log_on("ann's program", user_id="ann", pw="ann")
            assert "too many failed logons" in refused["detail"]


def test_logons_are_audited_as_those_with_passwords(tmp_path: Path) -> None:
    write_users(tmp_path, USERS + '\ntopic = [{ topic = "/AMPS/Audit", read = true }]\n')
    with (
        sql_server(tmp_path, elements=MODULES) as sql,
        sql.server.log_on("watcher", user_id="bob", pw="bob") as watcher,
    ):
        watcher.subscribe("/AMPS/Audit", "audit")
        for user, password in (("ann", "x"), ("bob", "x"), ("ann", "ann"), ("bob", "bob")):
            with suppress(psycopg.OperationalError):
                log_on(sql, user=user, password=password)
        events = [json.loads(watcher.receive()[1])["Audit"] for _ in range(4)]
    shown = [(one["event"], one["auth_id"], one["module"], one["reason"]) for one in events]
    assert shown == [
        ("logon_refused", "ann", "users", "wrong user or password"),
        ("logon_refused", "bob", "users", "wrong user or password"),
        ("logon", "ann", "users", None),
        ("logon", "bob", "users", None),
    ]


def test_another_password_counts_at_once(tmp_path: Path) -> None:
    """Also for a logon that is in progress."""
    write_users(tmp_path, USERS)
    with sql_server(tmp_path, elements=MODULES) as sql:
        client = ScramClient(sql, "ann")
        (_, challenge), *_ = client.begin()
        write_users(tmp_path, USERS.replace(scram_of("ann"), scram_of("new")))
        assert sql.server.logs("25-0060")
        answers = client.prove("n,,n=,r=abc", challenge, "ann", b"n,,")
        assert answers[0][0] == "E"
        log_on(sql, user="ann", password="new")


def test_without_authentication_nothing_is_asked_for(tmp_path: Path) -> None:
    write_users(tmp_path, USERS)
    off = (
        "<Actions><Action><On><Module>amps-action-on-startup</Module></On>"
        "<Do><Module>amps-action-do-disable-authentication</Module></Do>"
        "<Do><Module>amps-action-do-disable-entitlement</Module></Do></Action></Actions>"
    )
    with sql_server(tmp_path, elements=MODULES + off) as sql:
        assert sql.server.logs("25-0001", 2)
        log_on(sql, user="ann", password="anything")


LIBRARY: Final = """
from server.security.authentication import Admission

VERIFIERS = {"ann": "VERIFIER", "odd": "no verifier"}

class Store:
    async def authenticate(self, credentials, previous):
        return Admission(False, "", "only by SCRAM")

    async def scram_verifier(self, user):
        if user == "raise":
            raise LookupError("no such store")
        return VERIFIERS.get(user)

def create_authentication(name, options):
    return Store()
"""


def test_a_module_of_ones_own_gives_verifiers(tmp_path: Path) -> None:
    (tmp_path / "store.py").write_text(LIBRARY.replace('"VERIFIER"', repr(scram_of("ann"))))
    elements = (
        "<Modules><Module><Name>store</Name><Library>./store.py</Library></Module></Modules>"
        "<Authentication><Module>store</Module></Authentication>"
    )
    with sql_server(tmp_path, elements=elements) as sql:
        log_on(sql, user="ann", password="ann", require_auth="scram-sha-256")
        for user, password in (("ann", "x"), ("nobody", "ann")):
            with pytest.raises(psycopg.OperationalError, match="wrong user or password"):
                log_on(sql, user=user, password=password)
        for user in ("raise", "odd"):
            with pytest.raises(psycopg.OperationalError, match="cannot be checked at the moment"):
                log_on(sql, user=user, password="x")
        assert sql.server.logs("no such store")
        assert sql.server.logs("expected a verifier")
