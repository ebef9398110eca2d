"""Web services of permissions as they are: with Digest, with TLS, and with nothing that helps."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread
from typing import Final

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.security.http_support import MODULE, REFUSED, UNDECIDED, basic, log_on, refused, served
from tests.support.server import running_server, why_no_start
from tests.support.web_service import Answer, Asked, Reply, everything, web_service
from tests.transports.support import Authority

GOOD: Final = everything().body


# --- Digest: the answers are computed here as RFC 7616 says, from the parameters of the request


def _digest_fields(header: str) -> dict[str, str]:
    assert header.startswith("Digest ")
    found = re.findall(r'([\w*]+)=(?:"((?:[^"\\]|\\.)*)"|([^,\s]+))', header)
    return {name: quoted.replace('\\"', '"') or plain for name, quoted, plain in found}


HASHES: Final[dict[str, Callable[[bytes], str]]] = {
    "MD5": lambda data: hashlib.md5(data).hexdigest(),
    "SHA-256": lambda data: hashlib.sha256(data).hexdigest(),
}


def digest_service(challenges: list[str], algorithm: str, qop: str, nonces: list[str]) -> Answer:
    """A service that takes Digest with one algorithm, and a nonce once."""

    def challenge(nonce: str, stale: bool) -> Reply:
        said = ", ".join(one.replace("NONCE", nonce) for one in challenges)
        return Reply(401, b"", {"WWW-Authenticate": said + (", stale=TRUE" if stale else "")})

    def answer(asked: Asked) -> Reply:
        shown = asked.headers.get("authorization")
        if shown is None:
            return challenge(nonces[0], stale=False)
        given = _digest_fields(shown)
        hashed = HASHES[algorithm.removesuffix("-sess")]
        realm = given["realm"]
        if given.get("userhash") == "true":
            assert given["username"] == hashed(f"jürgen:{realm}".encode())
        elif "username*" in given:
            assert given["username*"] == "UTF-8''j%C3%BCrgen"
        else:
            assert given["username"].encode("latin-1") == "jürgen".encode()
        secret = hashed(f'jürgen:{realm}:pä"ss:1'.encode())
        if algorithm.endswith("-sess"):
            secret = hashed(f"{secret}:{given['nonce']}:{given['cnonce']}".encode())
        asked_for = hashed(f"GET:{asked.path}".encode())
        middle = f"{given['nc']}:{given['cnonce']}:{qop}:" if qop else ""
        expected = hashed(f"{secret}:{given['nonce']}:{middle}{asked_for}".encode())
        assert given["uri"] == asked.path
        assert given.get("opaque", "o,1") == "o,1"
        if given["response"] != expected:
            return Reply(403)
        if given["nonce"] != nonces[-1]:
            return challenge(nonces[-1], stale=True)
        return everything()

    return answer


@pytest.mark.parametrize(
    ("challenges", "algorithm", "qop"),
    [
        (['Digest realm="r", nonce="NONCE"'], "MD5", ""),
        (['Digest realm="r \\"1\\"", nonce="NONCE", qop="auth", opaque="o,1"'], "MD5", "auth"),
        (
            ['Digest realm="r", nonce="NONCE", qop="auth-int, auth", algorithm=MD5-sess'],
            "MD5-sess",
            "auth",
        ),
        (
            [
                'Basic realm="r"',
                'Digest realm="r", nonce="NONCE", qop="auth", algorithm=MD5',
                'Digest realm="r", nonce="NONCE", qop="auth", algorithm=SHA-256, charset=UTF-8',
                'Digest realm="r", nonce="NONCE", qop="auth", algorithm=SHA-9',
                "Negotiate",
            ],
            "SHA-256",
            "auth",
        ),
        (
            ['Digest realm="r", nonce="NONCE", qop=auth, algorithm=SHA-256-sess, userhash=true'],
            "SHA-256-sess",
            "auth",
        ),
    ],
)
@pytest.mark.parametrize("nonces", [["n1"], ["n1", "n2"]])
def test_digest(
    tmp_path: Path, challenges: list[str], algorithm: str, qop: str, nonces: list[str]
) -> None:
    answer = digest_service(challenges, algorithm, qop, nonces)
    with served(tmp_path, answer) as (server, service):
        assert log_on(server, "jürgen", 'pä"ss:1')["status"] == "success", server.log()
        assert len(service.asked) == 1 + len(nonces)
        assert refused(log_on(server, "jürgen", "wrong"), REFUSED)
        assert "pä" not in "".join(one.headers.get("authorization", "") for one in service.asked)


@pytest.mark.parametrize(
    ("challenge", "said"),
    [
        ("Negotiate", "it asks for negotiate, and Basic and Digest are what there is"),
        ('Digest realm="r", nonce="1", qop="auth-int"', "it asks for digest"),
        ('Digest realm="r"', "it asks for digest"),
    ],
)
def test_what_cannot_be_answered(tmp_path: Path, challenge: str, said: str) -> None:
    def answer(_: Asked) -> Reply:
        return Reply(401, b"", {"WWW-Authenticate": challenge})

    with served(tmp_path, answer) as (server, service):
        assert refused(log_on(server, "ann", "pw"), UNDECIDED)
        assert server.logs(said)
        assert len(service.asked) == 1


def test_basic_cannot_say_a_name_with_a_colon(tmp_path: Path) -> None:
    with served(tmp_path, basic({"a": "b:c"})) as (server, _):
        assert refused(log_on(server, "a:b", "c"), UNDECIDED)
        assert server.logs("a user name cannot have a colon")


# --- services that are down, slow or lying


@contextmanager
def raw_service(*pieces: bytes, closes: bool = True) -> Iterator[int]:
    """A service that answers every request with the same bytes; its port."""
    listening = socket.create_server(("127.0.0.1", 0))
    connections = []

    def serve() -> None:
        try:
            while True:
                connection, _ = listening.accept()
                connections.append(connection)
                Thread(target=answer, args=(connection,), daemon=True).start()
        except OSError:
            return

    def answer(connection: socket.socket) -> None:
        try:
            request = b""
            while b"\r\n\r\n" not in request:
                request += connection.recv(65536) or b"\r\n\r\n"
            for piece in pieces:
                connection.sendall(piece)
            if closes:
                connection.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    Thread(target=serve, daemon=True).start()
    try:
        yield listening.getsockname()[1]
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        for connection in connections:
            connection.close()


def response(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    lines = [f"HTTP/1.1 {status}", *(headers or (f"Content-Length: {len(body)}",))]
    return "\r\n".join([*lines, "", ""]).encode() + body


MEGABYTES: Final = b"10000\r\n" + b" " * 65536 + b"\r\n"

BAD: Final = {
    "redirect": (
        [response(b"", "Location: http://127.0.0.1:1/", "Content-Length: 0", status="302 Found")],
        "status 302: redirections are not followed",
    ),
    "broken": ([response(b"oops", status="500 Internal Server Error")], "answers with status 500"),
    "down": ([response(b"", "Content-Length: 0", status="503 Down")], "answers with status 503"),
    "elsewhere": ([response(b"", "Content-Length: 0", status="404 No")], "answers with status 404"),
    "empty": ([response(b"")], "document cannot be used: it is no JSON"),
    "doubled": (
        [response(b'{"logon": false, "topic": [], "logon": true}')],
        "document cannot be used: 'logon' is there twice",
    ),
    "doubled in an entry": (
        [response(b'{"topic": [{"topic": "a", "read": false, "r\\u0065ad": true}]}')],
        "document cannot be used: 'read' is there twice",
    ),
    "many entries": (
        [response(b'{"replicated-topics": [' + b'"a",' * 5_000 + b'"a"]}')],
        "document cannot be used: replicated-topics: it has 5001 entries, and may have 5000",
    ),
    "html": ([response(b"<html>logon: true</html>")], "document cannot be used: it is no JSON"),
    "list": ([response(b"[true]")], "expected a JSON object"),
    "latin": ([response(b'{"logon": "\xe4"}')], "document cannot be used"),
    "deep": ([response(b"[" * 100_000)], "document cannot be used: it is no JSON"),
    "text": ([response(b'{"logon": "true"}')], "logon: expected true or false"),
    "misspelt": (
        [response(b'{"logon":true,"topic":[{"topic":"a","read":true,"selct":"-/"}]}')],
        "topic, entry 1: 'selct' is not known: did you mean select?",
    ),
    "filter": ([response(b'{"topic":[{"topic":"a","read":"/a ="}]}')], "topic, entry 1: read: "),
    "expression": (
        [response(b'{"topic":[{"topic":"a(","read":true}]}')],
        "topic, entry 1: topic: ",
    ),
    "selection": (
        [response(b'{"topic":[{"topic":"a","read":true,"select":"a"}]}')],
        "topic, entry 1: select: ",
    ),
    "nobody": ([response(b'{"logon":true,"user_name":""}')], "user_name: expected a name"),
    "two lines": ([response(b'{"logon":true,"user_name":"a\\nb"}')], "user_name: expected a name"),
    "truncated": ([response(GOOD, f"Content-Length: {len(GOOD) + 1}")], "it does not speak HTTP"),
    "cut": ([response(GOOD[:-2], "Connection: close")], "document cannot be used: it is no JSON"),
    "silent": ([b""], "it ended the connection without an answer"),
    "other": ([b"220 mail.example ESMTP\r\n"], "it does not speak HTTP"),
    "gzip": (
        [response(gzip.compress(GOOD), "Content-Encoding: gzip", "Connection: close")],
        "the answer is compressed",
    ),
    "large": ([response(b"", "Transfer-Encoding: chunked"), *[MEGABYTES] * 100], "bytes"),
    "endless header": ([b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 100_000], "it does not speak HTTP"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_service_lets_nobody_in(tmp_path: Path, name: str) -> None:
    pieces, said = BAD[name]
    with (
        raw_service(*pieces) as port,
        running_server(tmp_path, elements=MODULE.format(port=port, options="")) as server,
    ):
        assert refused(log_on(server, "ann", "s3cret"), UNDECIDED)
        pattern = (
            rf"error: 25-0030 web service http://127.0.0.1:{port}\S* .*user ann.*{re.escape(said)}"
        )
        assert server.waits_for(lambda log: re.search(pattern, log) is not None), server.log()
        assert "s3cret" not in server.log()


@pytest.mark.parametrize("pieces", [[], [b"HTTP/1.1 200 OK\r\n"], [response(GOOD[:4], "X: y")]])
def test_a_service_that_does_not_end(tmp_path: Path, pieces: list[bytes]) -> None:
    options = "<RequestTimeout>100</RequestTimeout>"
    with (
        raw_service(*pieces, closes=False) as port,
        running_server(tmp_path, elements=MODULE.format(port=port, options=options)) as server,
    ):
        assert refused(log_on(server, "ann", "pw"), UNDECIDED)
        assert server.logs("no answer within 0.1 seconds")


def test_a_service_that_is_not_there(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    elements = MODULE.format(port=port, options="")
    with running_server(tmp_path, elements=elements) as server:
        assert refused(log_on(server, "ann", "pw"), UNDECIDED)
        assert server.logs("connection refused")


def test_a_connection_has_its_time(tmp_path: Path) -> None:
    """Of a service that accepts no connections the queue is full; the next one waits."""
    options = "<ConnectionTimeout>100</ConnectionTimeout>"
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, socket.socket() as first:
        first.connect(full.getsockname())
        more = [socket.socket() for _ in range(4)]
        for one in more:
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        elements = MODULE.format(port=full.getsockname()[1], options=options)
        with running_server(tmp_path, elements=elements) as server:
            assert refused(log_on(server, "ann", "pw"), UNDECIDED)
            assert server.logs("no connection within 0.1 seconds")
        for one in more:
            one.close()


@pytest.mark.parametrize(("retries", "status", "requests"), [(2, "success", 3), (1, "failure", 2)])
def test_it_is_tried_again(tmp_path: Path, retries: int, status: str, requests: int) -> None:
    answers = [Reply(500), Reply(200, b"<html>"), everything()]
    options = f"<RetryCount>{retries}</RetryCount>"
    with served(tmp_path, lambda _: answers.pop(0), options) as (server, service):
        assert log_on(server, "ann", "pw")["status"] == status
        assert len(service.asked) == requests


def test_a_refusal_is_not_tried_again(tmp_path: Path) -> None:
    with served(tmp_path, lambda _: Reply(403), "<RetryCount>5</RetryCount>") as (server, service):
        assert refused(log_on(server, "ann", "pw"), REFUSED)
        assert len(service.asked) == 1


def test_what_a_service_says_besides_is_passed_over(tmp_path: Path) -> None:
    said = json.loads(GOOD) | {"group": "traders", "expires": None, "user_name": None}
    said["topic"][0] |= {"description": "all of it", "select": None}
    body = b"\xef\xbb\xbf" + json.dumps(said).encode()
    answer = Reply(200, body, {"Content-Type": "text/html; charset=utf-8"})
    with served(tmp_path, lambda _: answer) as (server, _), server.connect() as peer:
        assert peer.log_on(user_id="ann", pw="pw")["status"] == "success"
        assert peer.subscribe("t", "1")["status"] == "success"


# --- connections


@pytest.mark.parametrize("how", ["enabled", "disabled"])
def test_connections_are_used_again_where_that_is_wanted(tmp_path: Path, how: str) -> None:
    options = f"<ReuseConnections>{how}</ReuseConnections>"
    answer = basic({"ann": "1", "bob": "2"})
    with served(tmp_path, answer, options, protocol="HTTP/1.1") as (server, service):
        for user, password in (("ann", "1"), ("bob", "2"), ("ann", "1")):
            assert log_on(server, user, password)["status"] == "success"
        assert len(service.asked) == 6
        assert len({one.peer for one in service.asked}) == (1 if how == "enabled" else 6)


def test_a_connection_that_was_closed_meanwhile_is_no_failure(tmp_path: Path) -> None:
    """HTTP/1.0 closes, and says so; here a service says nothing of it."""
    options = "<ReuseConnections>enabled</ReuseConnections>"
    with (
        raw_service(response(GOOD)) as port,
        running_server(tmp_path, elements=MODULE.format(port=port, options=options)) as server,
    ):
        for user in ("ann", "bob", "col"):
            assert log_on(server, user, "pw")["status"] == "success"


# --- TLS


HTTPS: Final = MODULE.replace("http:", "https:").replace("127.0.0.1", "localhost")


@contextmanager
def tls_service(
    certificate: tuple[Path, Path], authority: Authority | None = None
) -> Iterator[int]:
    """A service with a certificate; its port. With an authority, clients need one, too."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    if authority is not None:
        context.load_verify_locations(authority.file)
        context.verify_mode = ssl.CERT_REQUIRED
    with web_service(basic({"ann": "1"}), context) as service:
        yield service.port


def self_signed(directory: Path, name: str, days: int = 1) -> tuple[Path, Path]:
    """A certificate that nobody but its own key has signed, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.now(UTC) - timedelta(days=2))
        .not_valid_after(datetime.now(UTC) + timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    certificate, key_file = directory / f"self{days}.crt", directory / f"self{days}.key"
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return certificate, key_file


@pytest.mark.parametrize(
    ("of_service", "options", "said"),
    [
        ("known", "<CAKey>{known}</CAKey>", None),
        ("known", "", "its certificate is not trusted"),
        ("known", "<CAKey>{other}</CAKey>", "its certificate is not trusted"),
        ("elsewhere", "<CAKey>{known}</CAKey>", "its certificate is not trusted"),
        ("self", "<CAKey>{known}</CAKey>", "its certificate is not trusted: self-signed"),
        ("self", "<CAKey>{known}</CAKey><AllowSelfSigned>true</AllowSelfSigned>", None),
        ("self", "<AllowUnverifiedPeer>true</AllowUnverifiedPeer>", None),
        ("expired", "<AllowSelfSigned>true</AllowSelfSigned>", "is not trusted"),
        ("other host", "<AllowSelfSigned>true</AllowSelfSigned>", "is not trusted"),
        ("known", "<CAKey>{other}</CAKey><AllowSelfSigned>true</AllowSelfSigned>", "not trusted"),
        ("known", "<AllowUnverifiedPeer>true</AllowUnverifiedPeer>", None),
    ],
)
def test_the_service_shows_who_it_is(
    tmp_path: Path, of_service: str, options: str, said: str | None
) -> None:
    known, other = Authority(tmp_path, "known"), Authority(tmp_path, "other")
    certificates = {
        "known": known.issue("localhost"),
        "elsewhere": known.issue("elsewhere.example"),
        "self": self_signed(tmp_path, "localhost"),
        "expired": self_signed(tmp_path, "localhost", days=-1),
        "other host": self_signed(tmp_path, "elsewhere.example", days=2),
    }
    with tls_service(certificates[of_service]) as port:
        filled = options.format(known=known.file, other=other.file)
        elements = HTTPS.format(port=port, options=filled)
        with running_server(tmp_path, elements=elements) as server:
            ack = log_on(server, "ann", "1")
            if said is None:
                assert ack["status"] == "success", server.log()
            else:
                assert refused(ack, UNDECIDED)
                assert server.logs(said), server.log()


def test_this_instance_shows_who_it_is(tmp_path: Path) -> None:
    known, other = Authority(tmp_path, "known"), Authority(tmp_path, "other")
    with tls_service(known.issue("localhost"), known) as port:
        for authority, is_good in ((known, True), (other, False)):
            certificate, key = authority.issue("amps.example")
            options = (
                f"<CAKey>{known.file}</CAKey>"
                f"<Certificate>{certificate}</Certificate><Key>{key}</Key>"
            )
            directory = tmp_path / authority.file.stem
            directory.mkdir()
            elements = HTTPS.format(port=port, options=options)
            with running_server(directory, elements=elements) as server:
                ack = log_on(server, "ann", "1")
                assert (ack["status"] == "success") == is_good, server.log()


def test_a_certificate_that_changes_is_read_again(tmp_path: Path) -> None:
    known, other = Authority(tmp_path, "known"), Authority(tmp_path, "other")
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(other.file.read_bytes())
    with tls_service(known.issue("localhost")) as port:
        elements = HTTPS.format(port=port, options=f"<CAKey>{trusted}</CAKey>")
        with running_server(tmp_path, elements=elements) as server:
            assert refused(log_on(server, "ann", "1"), UNDECIDED)
            trusted.write_bytes(known.file.read_bytes() + other.file.read_bytes())
            assert server.waits_for(lambda _: log_on(server, "ann", "1")["status"] == "success")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("<CAKey>missing.pem</CAKey>", "CAKey missing.pem: no such file or directory"),
        ("<CAKey>config.xml</CAKey>", "CAKey config.xml: "),
        ("<Certificate>config.xml</Certificate>", "Certificate and Key config.xml: "),
    ],
)
def test_files_that_cannot_be_used_end_the_start(tmp_path: Path, options: str, said: str) -> None:
    found = why_no_start(tmp_path, HTTPS.format(port=1, options=options))
    assert re.search(rf"config\.xml:\d+: {said}", found), found


def test_what_the_service_cannot_say_is_nobodys_failure(tmp_path: Path) -> None:
    """A service that is down for long does not lead to users who may not log on when it is back."""
    replies = [Reply(500)] * 15 + [everything()]
    options = "<HTTPHeader>x: {{AMPS_PASSWORD}}</HTTPHeader>"
    with served(tmp_path, lambda _: replies.pop(0), options) as (server, _):
        for number in range(15):  # passwords differ: what is refused is remembered for a moment
            assert refused(log_on(server, "ann", f"pw{number}"), UNDECIDED)
        assert log_on(server, "ann", "pw")["status"] == "success"


def test_who_tries_again_and_again_does_not_fill_the_log(tmp_path: Path) -> None:
    options = "<HTTPHeader>x: {{AMPS_PASSWORD}}</HTTPHeader>"
    with served(tmp_path, lambda _: Reply(500), options) as (server, _):
        with ExitStack() as stack:
            peers = [stack.enter_context(server.connect()) for _ in range(40)]
            for number, peer in enumerate(peers):
                header = {"c": "logon", "cid": "1", "mt": "json", "a": "processed"}
                shown = {"client_name": f"c{number}", "user_id": "ann", "pw": f"pw{number}"}
                peer.send(header | shown)
            for peer in peers:
                assert peer.receive_header()["status"] == "failure"
        assert server.logs("25-0030", 10)
