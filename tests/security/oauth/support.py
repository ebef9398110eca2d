"""What tests of OAuth have in common: the module, its keys, and a logon with a token."""

from __future__ import annotations

from typing import Final

from tests.support.issuer import AUDIENCE, ISSUER, ec_key, rsa_key
from tests.support.server import RunningServer

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
SHORT: Final = rsa_key("short", bits=1024)
STRANGER: Final = rsa_key("rsa")
