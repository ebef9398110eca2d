"""SCRAM-SHA-256, the server's side (RFC 5802, RFC 7677).

    client: n,,n=,r=<nonce of the client>
    server: r=<both nonces>,s=<salt>,i=<iterations>
    client: c=biws,r=<both nonces>,p=<proof>
    server: v=<signature>

The library scramp does not serve PostgreSQL's clients: they send an empty user name here, because
the startup message has it, and scramp refuses that.
Source: PostgreSQL 16, src/backend/libpq/auth-scram.c.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
import stringprep
import unicodedata
from typing import Final, NamedTuple

from server.sql.postgres.messages import ProtocolViolationError

MECHANISM: Final = "SCRAM-SHA-256"
ITERATIONS: Final = 4096
"""Iterations of PBKDF2, as PostgreSQL; 1 to 2 ms of one processor."""
MAX_ITERATIONS: Final = 10_000_000
_SALT_SIZE: Final = 16
_KEY_SIZE: Final = 32
_NONCE_SIZE: Final = 18
MAX_SCRAM_MESSAGE: Final = 4096

_CLIENT_FIRST: Final = re.compile(
    r"(?P<header>(?P<flag>[yn]|p=[^,]*),(?P<authzid>[^,]*),)"
    r"(?P<bare>n=(?P<user>[^,]*),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?:,.*)?)",
    re.DOTALL,
)
_CLIENT_FINAL: Final = re.compile(
    r"(?P<without_proof>c=(?P<binding>[^,]*),r=(?P<nonce>[^,]*)(?:,.*)?),p=(?P<proof>[^,]*)",
    re.DOTALL,
)
_VERIFIER: Final = re.compile(r"SCRAM-SHA-256\$(\d{1,8}):([^$:]+)\$([^$:]+):([^$:]+)")
_PROHIBITED: Final = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
    stringprep.in_table_a1,
)


class ScramVerifier(NamedTuple):
    """Proof of a password, without the password: what PostgreSQL keeps in pg_authid.

    Attributes:
        iterations: of PBKDF2.
        salt: of the password.
        stored_key: checks the client's proof.
        server_key: signs the server's answer.
    """

    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        """Omit the keys: this may end up in a log."""
        return f"ScramVerifier(iterations={self.iterations})"


class ScramRefusedError(Exception):
    """The client did not prove that it knows the password."""


def make_verifier(
    password: str, salt: bytes | None = None, iterations: int = ITERATIONS
) -> ScramVerifier:
    """Return the verifier of a password.

    Args:
        password: the password.
        salt: its salt; None for a new one.
        iterations: of PBKDF2.
    """
    if salt is None:
        salt = secrets.token_bytes(_SALT_SIZE)
    salted = hashlib.pbkdf2_hmac("sha256", _prepared(password), salt, iterations)
    client_key = _hmac(salted, b"Client Key")
    stored_key = hashlib.sha256(client_key).digest()
    return ScramVerifier(iterations, salt, stored_key, _hmac(salted, b"Server Key"))


def read_verifier(text: str) -> ScramVerifier | None:
    """Return a verifier in the form that PostgreSQL stores; None if the text is something else.

    SCRAM-SHA-256$<iterations>:<salt>$<stored key>:<server key>, the last three in base64.
    """
    match = _VERIFIER.fullmatch(text)
    if match is None:
        return None
    try:
        salt, stored_key, server_key = (
            base64.b64decode(part, validate=True) for part in match.groups()[1:]
        )
    except binascii.Error:
        return None
    iterations = int(match[1])
    if not 0 < iterations <= MAX_ITERATIONS or not len(stored_key) == len(server_key) == _KEY_SIZE:
        return None
    return ScramVerifier(iterations, salt, stored_key, server_key)


def verifier_of(secret: str | None, user: str, mock_key: bytes) -> ScramVerifier:
    """Return the verifier for a user.

    Args:
        secret: the password, or a stored verifier; None for an unknown user.
        user: the name of the user.
        mock_key: a secret of the server. An unknown user gets the same salt at each logon, as a
            known one does, and is refused at the end.
    """
    if secret is not None:
        return read_verifier(secret) or make_verifier(secret)
    salt = _hmac(mock_key, user.encode(errors="replace"))[:_SALT_SIZE]
    return ScramVerifier(
        ITERATIONS, salt, secrets.token_bytes(_KEY_SIZE), secrets.token_bytes(_KEY_SIZE)
    )


class ScramExchange:
    """One authentication by SCRAM-SHA-256.

    Args:
        verifier: checks the client's proof.
        nonce: the server's part of the nonce; empty for a random one.
    """

    def __init__(self, verifier: ScramVerifier, nonce: str = "") -> None:
        self._verifier = verifier
        self._own_nonce = nonce or base64.b64encode(secrets.token_bytes(_NONCE_SIZE)).decode()
        self._header = ""  # of the client's first message: says how the channel is bound
        self._nonce = ""
        self._messages = ""  # the client's first one, and the answer to it

    def challenge(self, client_first: bytes) -> bytes:
        """Return the challenge for a client's first message.

        Raises:
            ProtocolViolationError: it is no such message.
        """
        match = _CLIENT_FIRST.fullmatch(_decode(client_first))
        if match is None:
            raise ProtocolViolationError("malformed SCRAM message")
        if match["flag"].startswith("p"):
            raise ProtocolViolationError("the client requires SCRAM channel binding")
        if match["authzid"]:
            raise ProtocolViolationError("client uses authorization identity", "0A000")
        self._header = match["header"]
        self._nonce = match["nonce"] + self._own_nonce
        salt = base64.b64encode(self._verifier.salt).decode()
        server_first = f"r={self._nonce},s={salt},i={self._verifier.iterations}"
        self._messages = f"{match['bare']},{server_first}"
        return server_first.encode()

    def finish(self, client_final: bytes) -> bytes:
        """Check the proof in a client's second message. Return the last answer.

        Raises:
            ProtocolViolationError: it is no such message.
            ScramRefusedError: the password is another one.
        """
        match = _CLIENT_FINAL.fullmatch(_decode(client_final))
        if match is None or not self._messages:
            raise ProtocolViolationError("malformed SCRAM message")
        binding = base64.b64encode(self._header.encode()).decode()
        if match["binding"] != binding or match["nonce"] != self._nonce:
            raise ProtocolViolationError("SCRAM channel binding or nonce does not match")
        try:
            proof = base64.b64decode(match["proof"], validate=True)
        except binascii.Error:
            proof = b""
        if len(proof) != _KEY_SIZE:
            raise ProtocolViolationError("malformed SCRAM proof")
        signed = f"{self._messages},{match['without_proof']}".encode()
        signature = _hmac(self._verifier.stored_key, signed)
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        if not hmac.compare_digest(hashlib.sha256(client_key).digest(), self._verifier.stored_key):
            raise ScramRefusedError
        return b"v=" + base64.b64encode(_hmac(self._verifier.server_key, signed))


def _decode(message: bytes) -> str:
    if len(message) > MAX_SCRAM_MESSAGE:
        raise ProtocolViolationError("a SCRAM message is too long")
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise ProtocolViolationError("malformed SCRAM message") from None


def _hmac(key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, "sha256")


def _prepared(password: str) -> bytes:
    """Return a password prepared by SASLprep (RFC 4013); as it is if SASLprep prohibits it.

    PostgreSQL's server and clients do the same.
    """
    if password.isascii():
        return password.encode()
    mapped = "".join(
        " " if stringprep.in_table_c12(char) else char
        for char in password
        if not stringprep.in_table_b1(char)
    )
    normalized = unicodedata.ucd_3_2_0.normalize("NFKC", mapped)
    if not normalized or any(test(char) for char in normalized for test in _PROHIBITED):
        return password.encode(errors="surrogatepass")
    if any(map(stringprep.in_table_d1, normalized)) and (
        any(map(stringprep.in_table_d2, normalized))
        or not stringprep.in_table_d1(normalized[0])
        or not stringprep.in_table_d1(normalized[-1])
    ):
        return password.encode(errors="surrogatepass")
    return normalized.encode()
