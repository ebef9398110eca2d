"""SCRAM-SHA-256, the server's side (RFC 5802, RFC 7677).

    client: n,,n=,r=<nonce of the client>
    server: r=<both nonces>,s=<salt>,i=<iterations>
    client: c=biws,r=<both nonces>,p=<proof>
    server: v=<signature>

The server keeps a verifier: it checks the client's proof, and does not contain the password.
Over TLS, the proof may include the server's certificate (SCRAM-SHA-256-PLUS): a client notices if
it talks to a man in the middle.

The library scramp does not serve PostgreSQL's clients: they send an empty user name here, because
the startup message has it, and scramp refuses that.
Source: PostgreSQL 16, src/backend/libpq/auth-scram.c; RFC 5929, 4 (tls-server-end-point).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
import stringprep
import unicodedata
from typing import Final, NamedTuple

SCRAM: Final = "SCRAM-SHA-256"
SCRAM_PLUS: Final = "SCRAM-SHA-256-PLUS"
"""With channel binding: the proof includes the server's certificate."""

ITERATIONS: Final = 32_768
"""Iterations of PBKDF2 for new verifiers: about 10 ms of a client's processor at each logon.
PostgreSQL has 4,096. The server computes them only when a password is set."""
MAX_ITERATIONS: Final = 10_000_000
_SALT_SIZE: Final = 16
_KEY_SIZE: Final = 32
_NONCE_SIZE: Final = 18
_BINDING_FLAG: Final = "p=tls-server-end-point"
_MOCK_KEY: Final = secrets.token_bytes(_KEY_SIZE)
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
    """Checks the proof that a client knows a password, without containing it.

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

    def __str__(self) -> str:
        """Return the form that files and PostgreSQL's pg_authid have."""
        salt, stored_key, server_key = (
            base64.b64encode(octets).decode()
            for octets in (self.salt, self.stored_key, self.server_key)
        )
        return f"{SCRAM}${self.iterations}:{salt}${stored_key}:{server_key}"


class ScramMessageError(Exception):
    """A client's message breaks the rules of SCRAM. The text has the reason."""


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
    """Parse a verifier in the form that PostgreSQL stores; None if the text is something else.

    SCRAM-SHA-256$<iterations>:<salt>$<stored key>:<server key>, the last three in base64.
    """
    match = _VERIFIER.fullmatch(text)
    if match is None:
        return None
    try:
        salt, stored_key, server_key = (
            base64.b64decode(part, validate=True) for part in match.groups()[1:]
        )
    except ValueError:  # not base64, or not ASCII
        return None
    iterations = int(match[1])
    if not 0 < iterations <= MAX_ITERATIONS or not len(stored_key) == len(server_key) == _KEY_SIZE:
        return None
    return ScramVerifier(iterations, salt, stored_key, server_key)


def mock_verifier(user: str, iterations: int) -> ScramVerifier:
    """Return a verifier for a user without one, which no password matches.

    A user gets the same salt at each logon, as a known user does. It is derived from a secret of
    the process.

    Args:
        user: the name of the user.
        iterations: of PBKDF2, as most known users have.
    """
    salt = _hmac(_MOCK_KEY, user.encode(errors="surrogatepass"))[:_SALT_SIZE]
    return ScramVerifier(
        iterations, salt, secrets.token_bytes(_KEY_SIZE), secrets.token_bytes(_KEY_SIZE)
    )


class ScramExchange:
    """One authentication by SCRAM-SHA-256, or SCRAM-SHA-256-PLUS.

    Args:
        verifier: checks the client's proof.
        channel_binding: the hash of the server's certificate; empty if channel binding is not
            offered.
        nonce: the server's part of the nonce; empty for a random one.
    """

    def __init__(
        self, verifier: ScramVerifier, channel_binding: bytes = b"", nonce: str = ""
    ) -> None:
        self._verifier = verifier
        self._channel_binding = channel_binding
        self._own_nonce = nonce or base64.b64encode(secrets.token_bytes(_NONCE_SIZE)).decode()
        self._binding_input = b""  # the part of the proof about the channel
        self._nonce = ""
        self._messages = ""  # the client's first one, and the answer to it

    def make_challenge(self, client_first: str) -> str:
        """Return the challenge for a client's first message.

        Raises:
            ScramMessageError: it is malformed, or its channel binding is refused.
        """
        match = _CLIENT_FIRST.fullmatch(_limited(client_first))
        if match is None:
            raise ScramMessageError("malformed SCRAM message")
        if match["authzid"]:
            raise ScramMessageError("client uses authorization identity")
        self._binding_input = match["header"].encode() + self._requested_binding(match["flag"])
        self._nonce = match["nonce"] + self._own_nonce
        salt = base64.b64encode(self._verifier.salt).decode()
        server_first = f"r={self._nonce},s={salt},i={self._verifier.iterations}"
        self._messages = f"{match['bare']},{server_first}"
        return server_first

    def _requested_binding(self, flag: str) -> bytes:
        """Return the data of the channel binding that a client's flag asks for.

        Raises:
            ScramMessageError: there is none of that kind; or the client supports it and believes
                that the server does not. Then a man in the middle has changed the server's offer.
        """
        if flag == "n":
            return b""
        if flag == "y":
            if self._channel_binding:
                raise ScramMessageError(
                    "the client supports SCRAM channel binding but thinks the server does not:"
                    " the list of mechanisms was changed on its way"
                )
            return b""
        if flag != _BINDING_FLAG or not self._channel_binding:
            raise ScramMessageError("unsupported SCRAM channel-binding type")
        return self._channel_binding

    def finish(self, client_final: str) -> str:
        """Check the proof in a client's second message. Return the last answer.

        Raises:
            ScramMessageError: it is malformed, or is for another channel.
            ScramRefusedError: the password is another one.
        """
        match = _CLIENT_FINAL.fullmatch(_limited(client_final))
        if match is None or not self._messages:
            raise ScramMessageError("malformed SCRAM message")
        if match["binding"] != base64.b64encode(self._binding_input).decode():
            raise ScramMessageError("SCRAM channel binding check failed")
        if match["nonce"] != self._nonce:
            raise ScramMessageError("SCRAM nonce does not match")
        signed = f"{self._messages},{match['without_proof']}".encode(errors="surrogateescape")
        signature = _hmac(self._verifier.stored_key, signed)
        client_key = bytes(
            a ^ b for a, b in zip(_decode_proof(match["proof"]), signature, strict=True)
        )
        if not hmac.compare_digest(hashlib.sha256(client_key).digest(), self._verifier.stored_key):
            raise ScramRefusedError
        return "v=" + base64.b64encode(_hmac(self._verifier.server_key, signed)).decode()


def _limited(message: str) -> str:
    if len(message) > MAX_SCRAM_MESSAGE:
        raise ScramMessageError("a SCRAM message is too long")
    return message


def _decode_proof(text: str) -> bytes:
    try:
        proof = base64.b64decode(text, validate=True)
    except ValueError:  # not base64, or not ASCII
        proof = b""
    if len(proof) != _KEY_SIZE:
        raise ScramMessageError("malformed SCRAM proof")
    return proof


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
