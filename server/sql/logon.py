"""Logons of SQL clients, for all protocols. All of it runs on the engine's thread."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Final, cast

from server.engine.commands.errors import CommandRefusedError
from server.engine.commands.logon import admit
from server.security.authentication import LogonCredentials, LogonOrigin
from server.sql.client_log import client_name_of, complete_logon
from server.sql.query.errors import SqlError
from server.sql.sqlstate import INVALID_AUTHORIZATION, INVALID_PASSWORD, QUERY_CANCELED

if TYPE_CHECKING:
    from server.engine.session import Session
    from server.security.authentication import Admission
    from server.security.deferred import AnswerFuture


class LogonAttempt:
    """An attempt to log on. The decision may take time.

    Args:
        session: the session of the client.
        user: the name that the client has given.
        password: the password, or a message of an exchange.
        application: the name of the application.
        on_end: called with the admission of the client, or the challenge that it has to answer; or
            with the error.
    """

    def __init__(
        self,
        session: Session,
        user: str,
        password: str,
        application: str,
        on_end: Callable[[Admission | SqlError], None],
    ) -> None:
        context = session.connection_context
        self._session: Final = session
        self._user: Final = user
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
        credentials = LogonCredentials(user, password, explicit=True, origin=origin)
        self._steps: Generator[AnswerFuture[Any], None, Admission] | None = admit(
            session, credentials
        )

    @property
    def is_pending(self) -> bool:
        """Whether there is no decision yet."""
        return self._steps is not None

    def advance(self) -> None:
        """Take a step; go on when the decision has been made."""
        if self._steps is None:
            return
        if not self._session.is_open:
            self.abandon()
            self._on_end(SqlError(QUERY_CANCELED, "the connection was closed"))
            return
        try:
            pending = next(self._steps)
        except StopIteration as end:
            self._steps = None
            admission = cast("Admission", end.value)
            if admission.challenge is None:
                complete_logon(self._session, admission, self._client_name, self._message_type)
            self._on_end(admission)
        except CommandRefusedError as error:
            self._steps = None
            text = f'authentication failed for user "{self._user}"'
            self._on_end(SqlError(INVALID_PASSWORD, text, detail=error.detail))
        else:
            pending.add_done_callback(lambda _: self.advance())

    def abandon(self) -> None:
        """End the attempt without a decision: the connection is lost."""
        if self._steps is not None:
            self._steps.close()
            self._steps = None


def exchange_refused() -> SqlError:
    """Return the error for a challenge that a protocol has no message for."""
    return SqlError(
        INVALID_AUTHORIZATION,
        "the authentication module wants an exchange that this protocol lacks",
    )
