"""OAuth: bearer tokens count if they are signed by the issuer, for this server, and now."""

from __future__ import annotations

import hmac
import json
import time
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import pytest
from joserfc import jwk

from tests.admin.support import ask
from tests.security.oauth.support import EC, RSA, SHORT, STRANGER, TOKENS, log_on, module
from tests.support.issuer import (
    AUDIENCE,
    ISSUER,
    Issuer,
    claims,
    ec_key,
    issuing,
    key_set,
    part,
    rsa_key,
    signed,
)
from tests.support.server import RunningServer, free_port, running_server

UNNAMED: Final = ec_key("unnamed")
FOR_PS: Final = rsa_key("ps", alg="PS256")
FOR_ENCRYPTION: Final = rsa_key("encryption", use="enc")


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
