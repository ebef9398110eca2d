"""The logon of a client of PostgreSQL: a certificate, SCRAM-SHA-256 or a password."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from server.engine.commands.errors import CommandRefusedError
from server.engine.commands.logon import admit
from server.security.authentication import ChallengeLimit, LogonCredentials, LogonOrigin
from server.sql.client_log import client_name_of, complete_logon
from server.sql.postgres.errors import Diagnostic
from server.sql.postgres.events import (
    PasswordGiven,
    SaslContinued,
    SaslStarted,
    StartupRequested,
)
from server.sql.postgres.protocol import PostgresProtocol

if TYPE_CHECKING:
    from server.engine.session import Session
    from server.security.authentication import Admission
    from server.security.deferred import AnswerFuture
    from server.sql.sql_transport import SqlTransport

_INVALID_AUTHORIZATION: Final = "28000"
_INVALID_PASSWORD: Final = "28P01"  # noqa: S105 - a code

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
        resume: called when the events of the protocol may go on, after a decision that took time.

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
        self._logon: Generator[AnswerFuture[Any], None, Admission] | None = None

    @property
    def is_pending(self) -> bool:
        """Whether a decision is awaited."""
        return self._logon is not None

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
        if self._logon is not None:
            self._logon.close()
            self._logon = None

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
                    _INVALID_AUTHORIZATION,
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
        session, startup = self._session, self._startup
        assert startup is not None  # noqa: S101 - it precedes the password
        context = session.connection_context
        client_name = client_name_of(session, startup.parameters.get("application_name", ""))
        message_type = context.message_type or ""
        origin = LogonOrigin(
            context.transport,
            session.address,
            client_name,
            "",
            context.certificate_user,
            session.connection_name,
            message_type,
        )
        self._logon = admit(
            session, LogonCredentials(startup.user, password, explicit=True, origin=origin)
        )
        self._continue(client_name, message_type)

    def _continue(self, client_name: str, message_type: str) -> None:
        """Take a step of the logon; go on when the decision has been made."""
        session, logon = self._session, self._logon
        if logon is None or not session.is_open:
            return
        try:
            pending = next(logon)
        except StopIteration as end:
            self._logon = None
            admission = cast("Admission", end.value)
            if admission.challenge is None:
                complete_logon(session, admission, client_name, message_type)
                self._on_admitted(_encoded(admission.token) if self._uses_scram else None)
            elif self._uses_scram:
                self._write(self._protocol.continue_sasl(_encoded(admission.challenge.password)))
            else:
                self._refuse(
                    Diagnostic(
                        _INVALID_AUTHORIZATION,
                        "the authentication module wants an exchange that this protocol lacks",
                    )
                )
        except CommandRefusedError as error:
            self._logon = None
            self._refuse(
                Diagnostic(
                    _INVALID_PASSWORD,
                    f'authentication failed for user "{self.user}"',
                    detail=error.detail,
                )
            )
        else:
            pending.add_done_callback(lambda _: self._continue_later(client_name, message_type))

    def _continue_later(self, client_name: str, message_type: str) -> None:
        self._continue(client_name, message_type)
        self._resume()

    def _refuse(self, diagnostic: Diagnostic) -> None:
        self._write(self._protocol.end(diagnostic))
        self._session.close("auth")


def _encoded(message: str) -> bytes:
    """Return the bytes of a message of SCRAM."""
    return message.encode(errors="surrogateescape")
