"""OAuth: codes are exchanged for tokens, over connections whose other end is known."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.security.oauth.support import CODES, RSA, SECRET, STRANGER, TOKENS, log_on, module
from tests.support.issuer import Answer, claims, issuing, key_set, signed
from tests.support.server import free_port, running_server
from tests.support.waiting import WAIT_SECONDS
from tests.transports.support import Authority


def test_a_code_is_exchanged(tmp_path: Path) -> None:
    with issuing() as issuer:
        issuer.codes = {"code-1+/=&": {"access_token": "access-1", "token_type": "Bearer"}}
        loaded = CODES.format(url=issuer.url).replace("amps-1", "amps-0")
        used = "<ClientID>amps-1</ClientID><HTTPHeader>X-Site: b</HTTPHeader>"
        elements = module(loaded, used)
        with running_server(tmp_path, elements=elements, level="trace") as server:
            assert log_on(server, "code-1+/=&", "bob")["status"] == "success"
            assert server.logs("authid           = 'bob'")
            assert issuer.forms == [
                {
                    "grant_type": "authorization_code",
                    "code": "code-1+/=&",
                    "redirect_uri": "http://localhost:3000",
                    "client_id": "amps-1",
                    "client_secret": SECRET,
                }
            ]
            assert issuer.headers[0]["X-Site"] == "b"
            assert issuer.headers[0]["content-type"] == "application/x-www-form-urlencoded"
            ack = log_on(server, "code-1+/=&", "bob")  # it counts once
            assert (ack["status"], ack["detail"]) == ("failure", "the token is not accepted")
            assert server.logs("returned invalid_grant")
            assert log_on(server, "", "bob")["status"] == "failure"
            assert log_on(server, "code-2", "")["detail"] == "a user name is required"
            assert len(issuer.forms) == 2
            log = server.log()
        assert not [one for one in ("code-1", "access-1", SECRET) if one in log]


ANSWERS: Final[dict[str, tuple[Any, str, bool]]] = {
    "an error of ours": (
        (401, {}, b'{"error": "invalid_client"}'),
        "returned invalid_client",
        False,
    ),
    "an error of its own": (
        (400, {}, b'{"error": "code_abc", "error_description": "code_abc"}'),
        "returned an unknown error",
        True,
    ),
    "an error and a token": (
        (200, {}, b'{"error": "invalid_grant", "access_token": "x"}'),
        "returned invalid_grant",
        True,
    ),
    "no token": ((200, {}, b"{}"), "gives no access token", True),
    "an empty token": ((200, {}, b'{"access_token": ""}'), "gives no access token", True),
    "nothing": ((200, {}, b""), "gives no access token", True),
    "no JSON": ((200, {}, b"access_token=x"), "gives no access token", True),
    "a list": ((200, {}, b'["access_token"]'), "gives no access token", True),
    "a token with a wrong status": (
        (500, {}, b'{"access_token": "x"}'),
        "its status is 500",
        False,
    ),
    "elsewhere": ((307, {"location": "/other"}, b""), "its status is 307", False),
    "too much": ((200, {}, b" " * 2_000_000), "more than 1048576 bytes", False),
}


@pytest.mark.parametrize(("answer", "why", "counts"), ANSWERS.values(), ids=ANSWERS)
def test_an_answer_that_is_no_token_refuses(
    tmp_path: Path, answer: Any, why: str, counts: bool
) -> None:
    with issuing() as issuer:
        issuer.answers["/token"] = lambda: answer
        elements = module(CODES.format(url=issuer.url))
        with running_server(tmp_path, elements=elements, level="trace") as server:
            ack = log_on(server, "code_abc", "bob")
            told = "token is not accepted" if counts else "cannot be checked at the moment"
            assert told in str(ack["detail"])
            assert server.logs(why)
            assert server.logs("25-0081" if counts else "25-0070")
            assert "code_abc" not in server.log()
            assert SECRET not in server.log()
        assert "/other" not in issuer.asked


def test_a_server_that_does_not_answer_is_asked_again_as_often_as_configured(
    tmp_path: Path,
) -> None:
    with issuing() as issuer:
        answers: Iterator[Answer] = iter(
            [(503, {}, b""), (503, {}, b""), (200, {}, b'{"access_token": "x"}')]
        )
        issuer.answers["/token"] = lambda: next(answers)
        options = CODES.format(url=issuer.url) + "<RetryCount>2</RetryCount>"
        with running_server(tmp_path, elements=module(options)) as server:
            assert log_on(server, "code", "bob")["status"] == "success"
    assert len(issuer.forms) == 3


def test_a_slow_server_holds_nobody_else_up(tmp_path: Path) -> None:
    """RequestTimeout ends the wait; whoever has logged on goes on meanwhile."""
    refused = threading.Event()

    def answer_late() -> Answer:
        refused.wait(WAIT_SECONDS)
        return 200, {}, b""

    with issuing() as issuer:
        issuer.codes = {"quick": {"access_token": "x"}}
        options = CODES.format(url=issuer.url) + "<RequestTimeout>1500</RequestTimeout>"
        with running_server(tmp_path, elements=module(options)) as server:
            with server.connect() as quick, server.connect() as waiting:
                assert quick.log_on("quick", user_id="q", pw="quick")["status"] == "success"
                issuer.answers["/token"] = answer_late
                logon = {"c": "logon", "cid": "1", "mt": "json", "a": "processed"}
                waiting.send({**logon, "user_id": "w", "pw": "slow"})
                for _ in range(3):
                    quick.flush()
                assert waiting.receive_header()["status"] == "failure"
            assert server.logs("no answer within 1.5 seconds")
            refused.set()


def test_a_server_that_is_not_there_refuses(tmp_path: Path) -> None:
    options = CODES.format(url=f"http://127.0.0.1:{free_port()}")
    with running_server(tmp_path, elements=module(options)) as server:
        assert log_on(server, "code", "bob")["status"] == "failure"
        assert server.logs("connection refused")


def test_a_code_and_keys_together_name_the_user(tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_bytes(key_set(RSA))
    with issuing() as issuer:
        issuer.codes = {
            "good": {"access_token": "opaque", "id_token": signed(RSA, claims(sub="eve"))},
            "access": {"access_token": signed(RSA, claims(sub="kim"))},
            "bad": {"access_token": "opaque", "id_token": signed(STRANGER, claims())},
            "opaque": {"access_token": "opaque"},
        }
        elements = module(CODES.format(url=issuer.url) + TOKENS.format(source="keys.json"))
        with running_server(tmp_path, elements=elements) as server:
            assert log_on(server, "good", "root")["status"] == "success"
            assert server.logs("authid           = 'eve'")
            assert log_on(server, "access", "")["status"] == "success"
            assert server.logs("authid           = 'kim'")
            assert log_on(server, "bad", "root")["status"] == "failure"
            assert log_on(server, "opaque", "root")["status"] == "failure"
            assert "authid           = 'root'" not in server.log()


def tls_context(
    authority: Authority, name: str, clients: Authority | None = None
) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue(name))
    if clients is not None:
        context.load_verify_locations(clients.file)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def test_tls_verifies_the_server_unless_told_otherwise(tmp_path: Path) -> None:
    known, stranger = Authority(tmp_path, "known"), Authority(tmp_path, "stranger")
    certificate, key = known.issue("client")
    good = f"<CAKey>{known.file}</CAKey>"
    own = f"<Certificate>{certificate}</Certificate><Key>{key}</Key>"
    unverified = "<AllowUnverifiedPeer>true</AllowUnverifiedPeer>"
    cases = [
        (tls_context(known, "localhost"), good, ""),
        (tls_context(stranger, "localhost"), good, "its certificate is not trusted"),
        (tls_context(known, "elsewhere.example"), good, "its certificate is not trusted"),
        (tls_context(known, "localhost"), "", "its certificate is not trusted"),
        (tls_context(stranger, "elsewhere.example"), unverified, ""),
        (tls_context(known, "localhost", known), good + own, ""),
        (tls_context(known, "localhost", known), good, "https://localhost"),
    ]
    for number, (context, options, why) in enumerate(cases):
        with issuing(context) as issuer:
            issuer.codes = {"code": {"access_token": "x"}}
            directory = tmp_path / str(number)
            directory.mkdir()
            elements = module(CODES.format(url=issuer.url) + options)
            with running_server(directory, elements=elements) as server:
                status = log_on(server, "code", "bob")["status"]
                assert status == ("failure" if why else "success"), number
                assert not why or server.logs(why), number


def test_a_self_signed_certificate_is_good_only_if_that_is_allowed(tmp_path: Path) -> None:
    for name, allowed, accepted in (
        ("localhost", "true", True),
        ("localhost", "false", False),
        ("elsewhere.example", "true", False),
    ):
        directory = tmp_path / f"{name}-{allowed}"
        directory.mkdir()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self_signed(directory / "own.pem", name))
        with issuing(context) as issuer:
            issuer.codes = {"code": {"access_token": "x"}}
            options = f"<AllowSelfSigned>{allowed}</AllowSelfSigned>"
            elements = module(CODES.format(url=issuer.url) + options)
            with running_server(directory, elements=elements) as server:
                assert (log_on(server, "code", "bob")["status"] == "success") is accepted


def self_signed(path: Path, name: str) -> Path:
    """Write a certificate that nobody but its owner has signed, with its key."""
    from datetime import UTC, datetime, timedelta

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    return path
