"""Files of users for tests, with hashes that the product has not made."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
from pathlib import Path
from typing import Any, Final

from tests.support.raw import RawPeer
from tests.support.server import RunningServer

MODULES: Final = """
<Modules>
  <Module>
    <Name>users</Name><Library>libamperage_users.so</Library>
    <Options><FileName>users.toml</FileName></Options>
  </Module>
</Modules>
<Authentication><Module>users</Module></Authentication>
<Entitlement><Module>users</Module></Entitlement>
"""

USERS: Final = """
[roles.trader]
logon = true
topic = [
    { topic = "orders", read = true, write = true },
    { topic = "^prices", read = true },
]

[users.ann]
password = "ANN"
roles = ["trader"]

[users.bob]
password = "BOB"
logon = true
topic = [{ topic = "prices", read = true }]

[users.carol]
password = "CAROL"
logon = false
admin = [{ topic = "^/amps/instance", read = true }]

[users.guest]
logon = true
"""


def hashed(password: str, ln: int = 4, salt: bytes = b"salt of the tests") -> str:
    """The hash of a password: a cheap one, as tests want them."""
    digest = hashlib.scrypt(
        password.encode(), salt=salt, n=1 << ln, r=8, p=1, dklen=32, maxmem=1 << 30
    )
    coded = [base64.b64encode(one).decode().rstrip("=") for one in (salt, digest)]
    return f"$scrypt$ln={ln},r=8,p=1${coded[0]}${coded[1]}"


def scram_of(password: str, iterations: int = 4096, salt: bytes = b"16 bytes of salt") -> str:
    """The verifier of a password for SCRAM, as PostgreSQL stores it."""
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, iterations)
    client_key, server_key = (
        hmac.digest(salted, name, "sha256") for name in (b"Client Key", b"Server Key")
    )
    parts = (salt, hashlib.sha256(client_key).digest(), server_key)
    coded = [base64.b64encode(part).decode() for part in parts]
    return f"SCRAM-SHA-256${iterations}:{coded[0]}${coded[1]}:{coded[2]}"


def write_users(directory: Path, text: str = USERS) -> Path:
    """Put a file of users in place, whole: every user's password is their name in small letters."""
    for name in ("ann", "bob", "carol"):
        text = text.replace(f'"{name.upper()}"', f'"{hashed(name)}"')
    new = directory / "users.new"
    new.write_text(text)
    new.chmod(0o600)
    os.replace(new, directory / "users.toml")
    return directory / "users.toml"


def try_to_log_on(peer: RawPeer, user: str, password: str) -> dict[str, Any]:
    """Log on, and give the ack."""
    return peer.log_on(f"{user}'s program", user_id=user, pw=password)


def may_log_on(server: RunningServer, user: str, password: str) -> bool:
    """Whether a logon succeeds."""
    with server.connect() as peer:
        return bool(try_to_log_on(peer, user, password)["status"] == "success")
