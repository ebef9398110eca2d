"""The logon of a client of PostgreSQL: a certificate, SCRAM-SHA-256 or a password."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from server.security.authentication import ChallengeLimit
from server.sql.logon import LogonAttempt, exchange_refused
from server.sql.postgres.errors import Diagnostic
from server.sql.postgres.events import (
    PasswordGiven,
    SaslContinued,
    SaslStarted,
    StartupRequested,
)
from server.sql.postgres.protocol import PostgresProtocol
from server.sql.query.errors import SqlError
from server.sql.sqlstate import INVALID_AUTHORIZATION
from server.sql.statement_output import to_diagnostic

if TYPE_CHECKING:
    from server.engine.session import Session
    from server.security.authentication import Admission
    from server.sql.sql_transport import SqlTransport


OnAdmitted = Callable[[bytes | None], None]
"""Called when the client is admitted, with the final message of SCRAM; None without it."""


class PostgresLogon:
    """The logon of one client.

    Args:
        sql: the properties of the transport.
        protocol: the state of the connection.
        session: the client's session.
        write: sends bytes to the client.
        on_admitted: see `OnAdmitted`.
        resume: called when the events of the protocol may go on, after a decision.

    Attributes:
        is_secure: whether the connection is secured by TLS.
        channel_binding: the hash of the server's certificate; empty if there is none to bind to.
    """

    def __init__(
        self,
        sql: SqlTransport,
        protocol: PostgresProtocol[Any, Any],
        session: Session,
        write: Callable[[bytes], None],
        on_admitted: OnAdmitted,
        resume: Callable[[], None],
    ) -> None:
        self.is_secure = False
        self.channel_binding = b""
        self._sql: Final = sql
        self._protocol: Final = protocol
        self._session: Final = session
        self._write: Final = write
        self._on_admitted: Final = on_admitted
        self._resume: Final = resume
        self._startup: StartupRequested | None = None
        self._uses_scram = False
        self._attempt: LogonAttempt | None = None

    @property
    def is_pending(self) -> bool:
        """Whether a decision is awaited."""
        return self._attempt is not None and self._attempt.is_pending

    @property
    def user(self) -> str:
        """The name that the client has given; empty before it has."""
        return "" if self._startup is None else self._startup.user

    @property
    def parameters(self) -> Mapping[str, str]:
        """The settings that the client has given."""
        return {} if self._startup is None else self._startup.parameters

    def close(self) -> None:
        """End the logon: the connection is lost."""
        if self._attempt is not None:
            self._attempt.abandon()

    def handle(self, event: StartupRequested | PasswordGiven | SaslStarted | SaslContinued) -> None:
        """Handle an event of the authentication."""
        match event:
            case StartupRequested():
                self._start_up(event)
            case PasswordGiven(password):
                self._log_on(password)
            case SaslStarted(_, data) | SaslContinued(data):
                self._log_on(data.decode(errors="surrogateescape"))

    def _start_up(self, startup: StartupRequested) -> None:
        self._startup = startup
        if self._sql.tls.is_required and not self.is_secure:
            self._refuse(
                Diagnostic(
                    INVALID_AUTHORIZATION,
                    "this transport requires TLS",
                    hint="Connect with sslmode=require.",
                )
            )
        elif self._sql.asks_for_passwords and not self._session.connection_context.certificate_user:
            self._request_credentials(startup.user)
        else:
            self._log_on("")

    def _request_credentials(self, user: str) -> None:
        """Request a proof by SCRAM from a user with a verifier, the password from others."""
        session, binding = self._session, self.channel_binding
        exchange = session.connection_context.authenticator.begin_scram(user, binding)
        if exchange is None:
            self._write(self._protocol.request_password())
            return
        self._uses_scram = True
        session.logon_exchange = ChallengeLimit(exchange)
        self._write(self._protocol.request_sasl(binds_channel=bool(binding)))

    def _log_on(self, password: str) -> None:
        startup = self._startup
        assert startup is not None  # noqa: S101 - it precedes the password
        application = startup.parameters.get("application_name", "")
        self._attempt = LogonAttempt(
            self._session, startup.user, password, application, self._end_attempt
        )
        self._attempt.advance()

    def _end_attempt(self, decision: Admission | SqlError) -> None:
        """Admit or refuse the client, or pass on the challenge of SCRAM."""
        if not self._session.is_open:
            return
        if isinstance(decision, SqlError):
            self._refuse(to_diagnostic(decision))
        elif decision.challenge is None:
            self._on_admitted(_encoded(decision.token) if self._uses_scram else None)
        elif self._uses_scram:
            self._write(self._protocol.continue_sasl(_encoded(decision.challenge.password)))
        else:
            self._refuse(to_diagnostic(exchange_refused()))
        self._resume()

    def _refuse(self, diagnostic: Diagnostic) -> None:
        self._write(self._protocol.end(diagnostic))
        self._session.close("auth")


def _encoded(message: str) -> bytes:
    """Return the bytes of a message of SCRAM."""
    return message.encode(errors="surrogateescape")
