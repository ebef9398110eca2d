"""The logon of a client of Flight SQL, on the engine's thread.

A client logs on with the first call that has its credentials: a user name and a password, a token
of an earlier logon, or none where the transport asks for none. Its session is that of the
connection and these credentials, so that clients that share a connection have sessions of their
own.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from server.engine.commands.errors import CommandRefusedError
from server.engine.commands.logon import admit
from server.security.authentication import (
    Admission,
    ImmediateAuthenticator,
    LogonCredentials,
    LogonOrigin,
)
from server.sql.client_log import client_name_of, complete_logon
from server.sql.flight.errors import INVALID_AUTHORIZATION, INVALID_PASSWORD
from server.sql.query.errors import QUERY_CANCELED, SqlError

if TYPE_CHECKING:
    from server.engine.connection_context import ConnectionContext
    from server.engine.session import Session
    from server.security.deferred import AnswerFuture

_TOKEN_MODULE: Final = "BearerToken"  # noqa: S105 - a name
"""The name of what admits the user of a token."""


class CallCredentials(NamedTuple):
    """The credentials of a call.

    Attributes:
        key: what the session of these credentials is found by, on the same connection.
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


@dataclass(frozen=True, slots=True)
class TokenAuthenticator(ImmediateAuthenticator):
    """Admits the user of a token, after an earlier logon."""

    user: str

    def authenticate(self, credentials: LogonCredentials) -> Admission:  # noqa: ARG002 - decided before
        """See `LogonExchange`."""
        return Admission(True, self.user, "authenticated by the token of a logon")


def with_token_user(context: ConnectionContext, user: str) -> ConnectionContext:
    """Return a context that admits the user of a token."""
    return replace(context, authenticator=TokenAuthenticator(user), auth_module=_TOKEN_MODULE)


class FlightLogon:
    """A logon in progress.

    Args:
        session: the session of the client.
        credentials: its credentials.
        application: the name of the application.
        on_end: called with the error, or None if the client is admitted.
    """

    def __init__(
        self,
        session: Session,
        credentials: CallCredentials,
        application: str,
        on_end: Callable[[SqlError | None], None],
    ) -> None:
        context = session.connection_context
        self._session: Final = session
        self._user: Final = credentials.user
        self._on_end: Final = on_end
        self._client_name: Final = client_name_of(session, application)
        self._message_type: Final = context.message_type or ""
        origin = LogonOrigin(
            context.transport,
            session.address,
            self._client_name,
            "",
            context.certificate_user,
            session.connection_name,
            self._message_type,
        )
        self._steps: Generator[AnswerFuture[Any], None, Admission] | None = admit(
            session,
            LogonCredentials(credentials.user, credentials.password, explicit=True, origin=origin),
        )

    def advance(self) -> None:
        """Take a step of the logon; go on when the decision has been made."""
        if self._steps is None:
            return
        try:
            pending = next(self._steps)
        except StopIteration as end:
            self._end(cast("Admission", end.value))
        except CommandRefusedError as error:
            self._steps = None
            text = f'authentication failed for user "{self._user}"'
            self._on_end(SqlError(INVALID_PASSWORD, text, detail=error.detail))
        else:
            pending.add_done_callback(lambda _: self.advance())

    def abandon(self) -> None:
        """End the logon: the connection is lost."""
        if self._steps is not None:
            self._steps.close()
            self._steps = None
            self._on_end(SqlError(QUERY_CANCELED, "the connection was closed"))

    def _end(self, admission: Admission) -> None:
        self._steps = None
        if admission.challenge is not None:
            text = "the authentication module wants an exchange that this protocol lacks"
            self._on_end(SqlError(INVALID_AUTHORIZATION, text))
            return
        complete_logon(self._session, admission, self._client_name, self._message_type)
        self._on_end(None)
