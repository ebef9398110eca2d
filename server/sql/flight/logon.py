"""The credentials of the calls of Flight SQL.

A client logs on with the first call that has its credentials: a user name and a password, a token
of an earlier logon, or none where the transport asks for none. Its session is that of the
connection and these credentials, so that clients that share a connection have sessions of their
own.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from server.security.authentication import Admission, FixedAuthenticator
from server.sql.query.errors import SqlError
from server.sql.sqlstate import INVALID_AUTHORIZATION

if TYPE_CHECKING:
    from server.engine.connection_context import ConnectionContext

_TOKEN_MODULE: Final = "BearerToken"  # noqa: S105 - a name
"""The name of the module that admits the user of a token."""


class CallCredentials(NamedTuple):
    """The credentials of a call.

    Attributes:
        key: the key of the session of these credentials, on the same connection.
        user: the name of the user; empty for none.
        password: the password.
        token: the token of an earlier logon; empty for none.
    """

    key: bytes
    user: str = ""
    password: str = ""
    token: str = ""

    def __repr__(self) -> str:
        """Omit password and token: this may end up in a log."""
        return f"CallCredentials({self.user!r})"


def read_authorization(header: str) -> CallCredentials:
    """Return the credentials of a header `authorization`; empty for a call without one.

    Raises:
        SqlError: the header has another scheme, or is malformed.
    """
    scheme, _, value = header.partition(" ")
    key = hashlib.sha256(header.encode("utf-8", "surrogateescape")).digest()
    match scheme.lower():
        case "":
            return CallCredentials(b"")
        case "basic":
            try:
                padding = "=" * (-len(value) % 4)  # which some clients leave out
                text = base64.b64decode(value + padding, validate=True).decode()
            except (binascii.Error, UnicodeDecodeError, ValueError):
                raise SqlError(INVALID_AUTHORIZATION, "the authorization is malformed") from None
            user, _, password = text.partition(":")
            return CallCredentials(key, user, password)
        case "bearer":
            return CallCredentials(token_key(value), token=value)
    raise SqlError(INVALID_AUTHORIZATION, "the authorization is neither Basic nor Bearer")


def token_key(token: str) -> bytes:
    """Return the key of the session of a token."""
    return hashlib.sha256(b"token " + token.encode("utf-8", "surrogateescape")).digest()


def with_token_user(context: ConnectionContext, user: str) -> ConnectionContext:
    """Return a context that admits the user of a token."""
    admission = Admission(True, user, "authenticated by the token of a logon")
    authenticator = FixedAuthenticator(admission)
    return replace(context, authenticator=authenticator, auth_module=_TOKEN_MODULE)
