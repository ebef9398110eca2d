"""OAuth: codes that are exchanged, and bearer tokens that are checked with the issuer's keys."""

from __future__ import annotations

import asyncio
import hmac
import json
import os
import ssl
import time
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import pytest
from joserfc import jwk

from server.security.oauth.bearer import Keys
from server.security.oauth.tokens import KeysError, TokenError
from server.security.web import WebError
from tests.admin.support import ask
from tests.core.support import RecordingLog
from tests.support.issuer import (
    AUDIENCE,
    ISSUER,
    Answer,
    Issuer,
    claims,
    ec_key,
    issuing,
    key_set,
    part,
    rsa_key,
    signed,
)
from tests.support.server import (
    CONFIGURATION,
    RunningServer,
    amp_server,
    free_port,
    running_server,
    why_no_start,
)
from tests.transports.support import Authority

SECRET: Final = "the-client-s-secret"

MODULE: Final = """
<Modules><Module>
  <Name>oauth</Name><Library>libamps_oauth_authentication.so</Library>
  <Options>{loaded}</Options>
</Module></Modules>
<Authentication><Module>oauth</Module><Options>{used}</Options></Authentication>
"""

TOKENS: Final = (
    "<KeySet>{source}</KeySet>"
    f"<Issuer>{ISSUER}</Issuer><Audience>other</Audience><Audience>{AUDIENCE}</Audience>"
)

CODES: Final = (
    "<TokenEndpoint>{url}/token</TokenEndpoint><RedirectURI>http://localhost:3000</RedirectURI>"
    f"<ClientID>amps-1</ClientID><ClientSecret>{SECRET}</ClientSecret>"
)


def module(loaded: str, used: str = "") -> str:
    """The elements of an instance that uses the module."""
    return MODULE.format(loaded=loaded, used=used)


def log_on(server: RunningServer, password: str, user: str = "") -> dict[str, object]:
    """Log on, and say how that ended; who is refused is disconnected."""
    with server.connect() as peer:
        ack = peer.ask(
            {
                "c": "logon",
                "cid": "1",
                "mt": "json",
                "a": "processed",
                "user_id": user,
                "pw": password,
                "client_name": "tester",
            }
        )
        if ack["status"] == "failure":
            assert ack["reason"] == "auth failure"
            assert peer.is_disconnected()
        return ack


RSA: Final = rsa_key("rsa")
EC: Final = ec_key("ec")
UNNAMED: Final = ec_key("unnamed")
FOR_PS: Final = rsa_key("ps", alg="PS256")
FOR_ENCRYPTION: Final = rsa_key("encryption", use="enc")
SHORT: Final = rsa_key("short", bits=1024)
STRANGER: Final = rsa_key("rsa")


@dataclass(frozen=True)
class Verifying:
    """A server that checks bearer tokens, and the issuer of its keys."""

    server: RunningServer
    issuer: Issuer


@pytest.fixture(scope="module")
def verifying(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Verifying]:
    with issuing() as issuer:
        unnamed = UNNAMED.as_dict(private=False)
        del unnamed["kid"]
        keys = json.loads(key_set(RSA, EC, FOR_PS, FOR_ENCRYPTION, SHORT))["keys"]
        issuer.keys = json.dumps(
            {"keys": [{"kty": "oct", "k": "c2VjcmV0"}, *keys, unnamed]}
        ).encode()
        elements = module(TOKENS.format(source=f"{issuer.url}/keys"))
        directory = tmp_path_factory.mktemp("verifying")
        with running_server(directory, elements=elements, level="trace") as server:
            yield Verifying(server, issuer)


GOOD: Final[dict[str, Callable[[], str]]] = {
    "RS256": lambda: signed(RSA, claims()),
    "PS256": lambda: signed(RSA, claims(), algorithm="PS256"),
    "ES256": lambda: signed(EC, claims()),
    "a key for one algorithm": lambda: signed(FOR_PS, claims(), algorithm="PS256"),
    "no name of a key": lambda: signed(UNNAMED, claims(), header={"kid": None}),
    "an access token": lambda: signed(RSA, claims(), header={"typ": "at+JWT"}),
    "more in the header": lambda: signed(RSA, claims(), header={"nonce": "x" * 600}),
    "several audiences": lambda: signed(RSA, claims(aud=["x", AUDIENCE])),
    "the other audience": lambda: signed(RSA, claims(aud="other")),
    "expired just now": lambda: signed(RSA, claims(exp=time.time() - 20)),
    "from a fast clock": lambda: signed(RSA, claims(nbf=time.time() + 20, iat=time.time() + 20)),
}


@pytest.mark.parametrize("make", GOOD.values(), ids=GOOD)
def test_a_good_token_is_accepted_and_names_the_user(
    verifying: Verifying, make: Callable[[], str]
) -> None:
    ack = log_on(verifying.server, make(), user="somebody else")
    assert (ack["status"], ack.get("pw")) == ("success", None)
    assert verifying.server.logs("authid           = 'ann'")
    assert "authid           = 'somebody else'" not in verifying.server.log()


def hmac_signed(secret: bytes) -> str:
    """A token whose key is common, as if a public one were that."""
    text = f"{part({'alg': 'HS256', 'kid': 'rsa'})}.{part(claims())}"
    mac = hmac.new(secret, text.encode(), sha256).digest()
    return f"{text}.{urlsafe_b64encode(mac).rstrip(b'=').decode()}"


def bare(key: Any) -> Any:
    """The same key for whatever one likes."""
    parts = key.as_dict(private=True)
    return jwk.import_key({name: one for name, one in parts.items() if name not in ("alg", "use")})


def changed(token: str) -> str:
    """The same token about somebody else."""
    header, _, signature = token.split(".")
    return f"{header}.{part(claims(sub='root'))}.{signature}"


def unsigned(**header: object) -> str:
    """A token with any signature."""
    return f"{part({'alg': 'RS256', 'kid': 'rsa', **header})}.{part(claims())}.c2ln"


REFUSED: Final[dict[str, tuple[Callable[[], str], str]]] = {
    "no token": (lambda: "hunter2-hunter2", "expected three parts"),
    "nothing in it": (lambda: "..", "its header is no JSON"),
    "no base64": (lambda: "!!!.e30.c2ln", "its header is no"),
    "no JSON": (lambda: "eHl6.e30.c2ln", "its header is no JSON"),
    "no object": (lambda: f"{part([])}.e30.c2ln", "its header is no JSON object"),
    "deep": (lambda: f"{urlsafe_b64encode(b'[' * 9000).decode()}.e30.c2ln", "its header is no"),
    "other letters": (lambda: "\u00e4.e30.c2ln", "its header is no base64"),
    "too long": (lambda: signed(RSA, claims(x="y" * 20_000)), "more than 16384 bytes"),
    "encrypted": (lambda: ".".join("abcde"), "expected three parts"),
    "none": (lambda: unsigned(alg="none"), "not signed with one of the algorithms"),
    "none at all": (lambda: f"{part({'alg': 'none'})}.{part(claims())}.", "not signed with one"),
    "no algorithm": (lambda: unsigned(alg=None), "not signed with one of the algorithms"),
    "a list of them": (lambda: unsigned(alg=["RS256"]), "not signed with one of the algorithms"),
    "a public key as secret": (
        lambda: hmac_signed(RSA.as_pem(private=False)),
        "not signed with one of the algorithms",
    ),
    "an algorithm that is not allowed": (
        lambda: signed(RSA, claims(), algorithm="RS512"),
        "not signed with one of the algorithms",
    ),
    "an algorithm of other keys": (lambda: unsigned(alg="ES256"), "no ES256 key of the name"),
    "another algorithm of the key": (
        lambda: signed(bare(FOR_PS), claims(), algorithm="RS256"),
        "no RS256 key of the name",
    ),
    "a key for encryption": (
        lambda: signed(bare(FOR_ENCRYPTION), claims()),
        "no RS256 key of the name",
    ),
    "a short key": (lambda: signed(SHORT, claims()), "no RS256 key of the name"),
    "an unknown key": (lambda: signed(rsa_key("new"), claims()), "no RS256 key of the name"),
    "a key name of another kind": (lambda: unsigned(kid=5), "(kid) is no text"),
    "a key of its own": (
        lambda: signed(STRANGER, claims(), header={"jwk": STRANGER.as_dict(private=False)}),
        "its signature is wrong",
    ),
    "a stranger's signature": (lambda: signed(STRANGER, claims()), "its signature is wrong"),
    "other claims": (lambda: changed(signed(RSA, claims())), "its signature is wrong"),
    "no signature": (
        lambda: signed(RSA, claims()).rpartition(".")[0] + ".",
        "its signature is wrong",
    ),
    "extensions": (lambda: unsigned(crit=["x"], x=1), "it wants extensions"),
    "an open payload": (lambda: unsigned(b64=False), "it wants extensions"),
    "another kind": (
        lambda: signed(RSA, claims(), header={"typ": "logout+jwt"}),
        "another kind of token",
    ),
    "no claims": (lambda: signed(RSA, ["x"]), "its content is no JSON object"),
    "expired": (lambda: signed(RSA, claims(exp=time.time() - 100)), "it expired 1"),
    "for ever": (lambda: signed(RSA, claims(exp=None)), "does not say when it expires"),
    "expiry as a text": (lambda: signed(RSA, claims(exp="2099-01-01")), "claim exp is no time"),
    "expiry as a truth": (lambda: signed(RSA, claims(exp=True)), "claim exp is no time"),
    "a very late expiry": (lambda: signed(RSA, claims(exp=1e300)), "claim exp is no time"),
    "not yet": (lambda: signed(RSA, claims(nbf=time.time() + 200)), "seconds (nbf)"),
    "issued tomorrow": (lambda: signed(RSA, claims(iat=time.time() + 86400)), "seconds (iat)"),
    "another issuer": (lambda: signed(RSA, claims(iss=f"{ISSUER}/")), "its issuer (iss) is not"),
    "no issuer": (lambda: signed(RSA, claims(iss=None)), "its issuer (iss) is not"),
    "another audience": (lambda: signed(RSA, claims(aud="billing")), "it is meant for others"),
    "no audience": (lambda: signed(RSA, claims(aud=None)), "it is meant for others"),
    "an audience in words": (lambda: signed(RSA, claims(aud=f"{AUDIENCE} x")), "meant for others"),
    "nobody": (lambda: signed(RSA, claims(sub=None)), "claim sub is no name of a user"),
    "an empty name": (lambda: signed(RSA, claims(sub="")), "claim sub is no name of a user"),
    "a number": (lambda: signed(RSA, claims(sub=7)), "claim sub is no name of a user"),
    "a name with a line end": (lambda: signed(RSA, claims(sub="a\nb")), "claim sub is no name"),
    "a long name": (lambda: signed(RSA, claims(sub="a" * 300)), "too long for a name"),
}


@pytest.mark.parametrize(("make", "why"), REFUSED.values(), ids=REFUSED)
def test_a_token_that_does_not_count_is_refused(
    verifying: Verifying, make: Callable[[], str], why: str
) -> None:
    """The client is told as much as any other; the log says why, and has nothing of the token."""
    token = make()
    before = len(verifying.server.log())
    ack = log_on(verifying.server, token, user=f"user {before}")  # too many of one are turned away
    assert (ack["status"], ack["detail"]) == ("failure", "the token is not accepted")
    assert verifying.server.waits_for(lambda log: why in log[before:])
    log = verifying.server.log()
    assert "25-0081" in log[before:]
    assert not [one for one in token.split(".") if len(one) > 10 and one in log]
    assert log_on(verifying.server, signed(RSA, claims()))["status"] == "success"


def test_an_empty_password_is_no_token(verifying: Verifying) -> None:
    ack = log_on(verifying.server, "", user="nobody")
    assert ack["detail"] == "a token is required, in the place of the password"


def test_the_admin_interface_takes_tokens_as_passwords(tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_bytes(key_set(RSA))
    port = free_port()
    admin = (
        f"<Admin><InetAddr>127.0.0.1:{port}</InetAddr>"
        '<WWWAuthenticate>Basic realm="x"</WWWAuthenticate></Admin>'
    )
    elements = module(TOKENS.format(source="keys.json")) + admin
    with running_server(tmp_path, elements=elements):
        assert ask(port, "/amps.json").status == 401
        good, bad = signed(RSA, claims()), signed(STRANGER, claims())
        for token, status in ((good, 200), (bad, 401)):
            shown = b64encode(f"x:{token}".encode()).decode()
            assert ask(port, "/amps.json", authorization=f"Basic {shown}").status == status


def test_keys_in_a_file_may_change(tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    keys.write_bytes(key_set(RSA))
    with running_server(tmp_path, elements=module(TOKENS.format(source="keys.json"))) as server:
        assert log_on(server, signed(RSA, claims()))["status"] == "success"
        assert log_on(server, signed(EC, claims()))["status"] == "failure"
        keys.write_bytes(key_set(EC))
        assert server.waits_for(
            lambda _: log_on(server, signed(EC, claims()))["status"] == "success"
        )
        assert log_on(server, signed(RSA, claims()))["status"] == "failure"
        keys.write_text("{")
        assert log_on(server, signed(EC, claims()))["status"] == "success"
        assert server.waits_for(
            lambda log: (
                log_on(server, signed(EC, claims()))["status"] == "success"
                and "keys.json: it is no key set" in log
            )
        )


@dataclass
class Source:
    """Where keys come from, by hand.

    Attributes:
        text: the keys; None while they cannot be read.
        reads: how often they have been asked for.
    """

    text: bytes | None
    reads: int = 0
    fresh_seconds: float = 300.0
    pause_seconds: float = 10.0
    last_seconds: float = 3600.0

    async def read(self) -> bytes:
        self.reads += 1
        await asyncio.sleep(0)
        if self.text is None:
            raise WebError("it is down")
        return self.text


@dataclass
class Rotation:
    """The keys of a source, at a time that only moves when it is told to."""

    source: Source
    now: float = 1000.0
    log: RecordingLog = field(default_factory=RecordingLog)

    def __post_init__(self) -> None:
        self.keys = Keys(self.source, self.log, lambda: self.now)

    async def has(self, name: str) -> bool:
        """Whether there is a key."""
        try:
            return bool(await self.keys.find(name, "ES256"))
        except TokenError:
            return False


def test_keys_are_read_again_when_they_may_have_changed() -> None:
    async def run() -> None:
        old, new = ec_key("old"), ec_key("new")
        rotation = Rotation(Source(key_set(old)))
        assert await rotation.has("old")
        rotation.source.text = key_set(new)
        assert not await rotation.has("new")  # they have just been read
        rotation.now += 10.0
        assert await rotation.has("new")
        assert not await rotation.has("old")
        assert rotation.source.reads == 2
        rotation.now += 299.0
        assert await rotation.has("new")
        assert rotation.source.reads == 2
        rotation.now += 1.0
        assert await rotation.has("new")
        assert rotation.source.reads == 3

    asyncio.run(run())


def test_many_who_ask_at_once_make_one_request() -> None:
    async def run() -> None:
        rotation = Rotation(Source(key_set(EC)))
        found = await asyncio.gather(*(rotation.has(name) for name in 500 * ["ec", "made-up"]))
        assert found == 500 * [True, False]
        assert rotation.source.reads == 1

    asyncio.run(run())


def test_keys_that_cannot_be_read_again_count_for_an_hour() -> None:
    async def run() -> None:
        rotation = Rotation(Source(key_set(EC)))
        assert await rotation.has("ec")
        rotation.source.text = None
        rotation.now += 3600.0
        assert await rotation.has("ec")
        rotation.now += 1.0
        with pytest.raises(KeysError):
            await rotation.has("ec")
        assert rotation.source.reads == 2
        rotation.source.text = key_set(EC)
        rotation.now += 10.0
        assert await rotation.has("ec")

    asyncio.run(run())


BAD_KEYS: Final[dict[str, tuple[Callable[[], Any], str]]] = {
    "no JSON": (lambda: (200, {}, b"<html>"), "it is no key set"),
    "no keys": (lambda: (200, {}, b"{}"), "it is no key set"),
    "none that could be used": (lambda: (200, {}, key_set(SHORT)), "there is no public RSA"),
    "not found": (lambda: (404, {}, key_set(RSA)), "its status is 404"),
    "elsewhere": (lambda: (302, {"location": "http://127.0.0.1:1/"}, b""), "its status is 302"),
    "too much": (lambda: (200, {}, b" " * 2_000_000), "more than 1048576 bytes"),
    "compressed": (lambda: (200, {"content-encoding": "gzip"}, b"x"), "compressed"),
}


@pytest.mark.parametrize(("answer", "why"), BAD_KEYS.values(), ids=BAD_KEYS)
def test_without_keys_nobody_gets_in(tmp_path: Path, answer: Callable[[], Any], why: str) -> None:
    with issuing() as issuer:
        issuer.answers["/keys"] = answer
        elements = module(TOKENS.format(source=f"{issuer.url}/keys?api=s3cret"))
        issuer.answers["/keys?api=s3cret"] = answer
        with running_server(tmp_path, elements=elements, level="trace") as server:
            ack = log_on(server, signed(RSA, claims()))
            assert ack["detail"] == "the credentials cannot be checked at the moment"
            assert server.logs(why)
            assert server.logs(f"localhost:{issuer.port}")
            assert "s3cret" not in server.log().partition("initialization completed")[2]


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
            assert server.logs("says invalid_grant")
            assert log_on(server, "", "bob")["status"] == "failure"
            assert log_on(server, "code-2", "")["detail"] == "a user name is required"
            assert len(issuer.forms) == 2
            log = server.log()
        assert not [one for one in ("code-1", "access-1", SECRET) if one in log]


ANSWERS: Final[dict[str, tuple[Any, str, bool]]] = {
    "an error of ours": ((401, {}, b'{"error": "invalid_client"}'), "says invalid_client", False),
    "an error of its own": (
        (400, {}, b'{"error": "code_abc", "error_description": "code_abc"}'),
        "says an error of its own",
        True,
    ),
    "an error and a token": (
        (200, {}, b'{"error": "invalid_grant", "access_token": "x"}'),
        "says invalid_grant",
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
    with issuing() as issuer:
        issuer.codes = {"quick": {"access_token": "x"}}
        options = CODES.format(url=issuer.url) + "<RequestTimeout>1500</RequestTimeout>"
        with running_server(tmp_path, elements=module(options)) as server:
            with server.connect() as quick, server.connect() as waiting:
                assert quick.log_on("quick", user_id="q", pw="quick")["status"] == "success"
                issuer.answers["/token"] = lambda: (time.sleep(5), (200, {}, b""))[1]  # type: ignore[func-returns-value]
                logon = {"c": "logon", "cid": "1", "mt": "json", "a": "processed"}
                waiting.send({**logon, "user_id": "w", "pw": "slow"})
                for _ in range(3):
                    quick.flush()
                assert waiting.receive_header()["status"] == "failure"
            assert server.logs("no answer within 1.5 seconds")


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


BAD_OPTIONS: Final = {
    "a key set of another scheme": (
        TOKENS.format(source="ftp://h/keys"),
        "KeySet: cannot be used: expected a URL such as",
    ),
    "no issuer": (
        TOKENS.format(source="http://h/keys").replace(ISSUER, " "),
        "Issuer: is empty",
    ),
    "no audience": (
        TOKENS.format(source="http://h/keys").replace(AUDIENCE, ""),
        "Audience: is empty",
    ),
    "neither": ("", "needs at least 1 of TokenEndpoint, KeySet"),
    "half": ("<TokenEndpoint>http://h/</TokenEndpoint>", "it goes together with TokenEndpoint"),
    "keys alone": ("<KeySet>keys.json</KeySet>", "it goes together with KeySet"),
    "no URL": (CODES.replace("{url}", "ftp://h"), "TokenEndpoint: cannot be used: expected a URL"),
    "a user": (CODES.replace("{url}", "http://u:hidden@h"), "it has a user in it"),
    "no URL of keys": (TOKENS.format(source="http:x"), "KeySet: cannot be used: expected a URL"),
    "no time": (TOKENS.format(source="k") + "<RequestTimeout>0</RequestTimeout>", "RequestTimeout"),
    "no header": (
        CODES.replace("{url}", "https://h") + "<HTTPHeader>hidden</HTTPHeader>",
        "HTTPHeader: cannot be used: expected a name",
    ),
    "another grant": (CODES + "<GrantType>password</GrantType>", "GrantType"),
    "an algorithm with a secret": (
        TOKENS.format(source="k") + "<Algorithms>RS256,HS256</Algorithms>",
        "HS256",
    ),
    "none": (TOKENS.format(source="k") + "<Algorithms>none</Algorithms>", "none"),
}


@pytest.mark.parametrize(("options", "said"), BAD_OPTIONS.values(), ids=BAD_OPTIONS)
def test_options_are_verified(tmp_path: Path, options: str, said: str) -> None:
    told = why_no_start(tmp_path, module(options))
    assert said in told
    assert "hidden" not in told


def test_files_are_looked_at_when_a_configuration_is_verified(tmp_path: Path) -> None:
    """They may be on another machine: what is wrong with them is a warning."""
    os.mkfifo(tmp_path / "pipe")
    for options, said in (
        (TOKENS.format(source="nowhere.json"), "KeySet: nowhere.json: No such file or directory"),
        (TOKENS.format(source="pipe"), "KeySet: pipe: it is a pipe and no file"),
        (
            CODES.format(url="https://h") + "<CAKey>pipe</CAKey>",
            "CAKey: pipe: it is a pipe and no file",
        ),
    ):
        text = CONFIGURATION.format(port=0, transports="", level="info", elements=module(options))
        (tmp_path / "config.xml").write_text(text)
        verified = amp_server("--verify-config", "config.xml", cwd=tmp_path)
        assert f"warning: Options/{said}" in verified.stdout + verified.stderr
        assert verified.returncode == 0


def test_who_uses_codes_alone_is_warned(tmp_path: Path) -> None:
    elements = module(CODES.format(url="http://localhost:1"))
    with running_server(tmp_path, elements=elements) as server:
        assert server.logs("taken for whichever user they say they are")
    (tmp_path / "keys.json").write_bytes(key_set(RSA))
    with running_server(tmp_path, elements=module(TOKENS.format(source="keys.json"))) as server:
        assert "whichever user" not in server.log()


BAD_VALUES: Final = {
    "no file": (TOKENS.format(source="nowhere.json"), "KeySet nowhere.json: there is no such file"),
    "no authority": (CODES.replace("{url}", "https://h") + "<CAKey>no.pem</CAKey>", "CAKey no.pem"),
}


@pytest.mark.parametrize(("options", "said"), BAD_VALUES.values(), ids=BAD_VALUES)
def test_values_that_cannot_be_used_end_the_start(tmp_path: Path, options: str, said: str) -> None:
    told = why_no_start(tmp_path, module(options))
    assert said in told
    assert "hidden" not in told


def test_secrets_are_shown_nowhere(tmp_path: Path) -> None:
    port = free_port()
    everybody = "<Module>amps-default-authentication-module</Module>"
    admin = (
        f"<Admin><InetAddr>127.0.0.1:{port}</InetAddr>"
        f"<Authentication>{everybody}</Authentication></Admin>"
    )
    header = "<HTTPHeader>Authorization: Basic c2VjcmV0</HTTPHeader>"
    elements = module(CODES.format(url="http://localhost:1") + header) + admin
    with running_server(tmp_path, elements=elements, level="trace") as server:
        shown = ask(port, "/amps/instance/config.xml").text
        assert "ClientSecret" in shown
        log = server.log()
    explained = amp_server("--explain-actions", tmp_path / "config.xml").stdout
    graph = amp_server("--graph", tmp_path / "config.xml").stdout
    for text in (shown, log, explained, graph):
        assert SECRET not in text
        assert "c2VjcmV0" not in text
