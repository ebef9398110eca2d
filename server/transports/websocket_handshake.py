"""The opening handshake of a websocket connection, which also takes the place of a logon.

The request's path ends with the protocol and the message type, `/any/path/amps/json`; credentials
are in its Authorization header. A logon command may follow, and gives the client its name.
Source: AMPS User Guide, Websocket Options and Accessing AMPS Through a Proxy; AMPS Command
Reference, logon command.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Final
from urllib.parse import unquote, urlsplit

from websockets.datastructures import Headers
from websockets.http11 import Request

from server.engine.connection_context import ConnectionContext
from server.security.authentication import (
    Admission,
    AuthenticatorWithoutScram,
    FixedAuthenticator,
    LogonAuthenticator,
    LogonCredentials,
    LogonExchange,
    LogonOrigin,
    proof_headers,
)
from server.security.deferred import AnswerOrFuture, mapped
from server.transports.origins import Origins
from server.transports.own_hosts import OwnHosts
from server.transports.trusted_admin import TrustedAdmin

_PROTOCOLS: Final = ("amps", "json", "websocket")


class HandshakeError(Exception):
    """The refusal of a connection. The text is the reason for the peer.

    Attributes:
        status: the HTTP status code.
        headers: further headers for the response.
        refused_logon: the user name that is not accepted, and the reason; None for other refusals.
    """

    def __init__(
        self,
        status: int,
        text: str,
        headers: tuple[tuple[str, str], ...] = (),
        refused_logon: tuple[str, str] | None = None,
    ) -> None:
        super().__init__(text)
        self.status = status
        self.headers = headers
        self.refused_logon = refused_logon


@dataclass(frozen=True, slots=True)
class HandshakeResult:
    """The permission to open a connection.

    Attributes:
        connection_context: the properties of the connection.
        headers: further headers for the response.
    """

    connection_context: ConnectionContext
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class HandshakeAuthenticator:
    """Decides on the opening handshakes of one transport.

    Attributes:
        message_types: the names of the message types that are allowed.
        www_authenticate: the challenge for requests without credentials (WWWAuthenticate); None
            if credentials may also come with the logon.
        origins: the web pages that may connect (AccessControlAllowOrigin).
        own_hosts: the hosts with the only pages that may connect, because no origins are configured
            and no credentials are checked; None otherwise.
        trusted_admin: finds users logged on to the admin interface; None without TrustedAdmin.
    """

    message_types: Collection[str]
    www_authenticate: str | None
    origins: Origins
    own_hosts: OwnHosts | None
    trusted_admin: TrustedAdmin | None

    def authenticate(
        self, request: Request, address: str, connection_context: ConnectionContext
    ) -> AnswerOrFuture[HandshakeResult | HandshakeError]:
        """Decide on a request.

        Args:
            request: the request.
            address: the peer's address.
            connection_context: the properties that the transport gives to its connections.

        Returns:
            The admittance, or the refusal if the credentials are not accepted.

        Raises:
            HandshakeError: the page's origin is not allowed, the path cannot be used, or there
                are no credentials.
        """
        self._check_origin(request.headers)
        message_type = self._read_message_type(request.path, connection_context.message_type)
        origin = LogonOrigin(
            connection_context.transport,
            address,
            certificate_user=connection_context.certificate_user,
        )
        connection_context = replace(connection_context, message_type=message_type)
        if self.trusted_admin is not None:
            user = self.trusted_admin.user_of(request.headers)
            if user is not None:
                admission = Admission(True, user, "logged on to the admin interface")
                trusted = FixedAuthenticator(admission)
                return HandshakeResult(
                    replace(connection_context, authenticator=trusted, auth_module="TrustedAdmin")
                )
        return self._check_credentials(connection_context, _credentials(request.headers, origin))

    def _check_origin(self, headers: Headers) -> None:
        for origin in headers.get_all("Origin"):
            if not self.origins.is_allowed(origin):
                raise HandshakeError(
                    HTTPStatus.FORBIDDEN, f"Pages of {origin[:200]!r} may not connect."
                )
            own_hosts = self.own_hosts
            if own_hosts is not None and not own_hosts.has_page(origin, headers.get("Host", "")):
                raise HandshakeError(
                    HTTPStatus.FORBIDDEN,
                    f"Pages of {origin[:200]!r} may not connect: where no credentials are checked, "
                    "only pages of this host and of the browser's own machine may. "
                    "AccessControlAllowOrigin of a Protocol says which others may; a name of this "
                    "host belongs in ExternalInetAddr of Admin.",
                )

    def _read_message_type(self, path: str, transport_type: str | None) -> str | None:
        """Return the message type in a path, or the transport's own."""
        segments = [unquote(segment) for segment in urlsplit(path).path.split("/") if segment]
        if not segments or (len(segments) == 1 and segments[0] in _PROTOCOLS):
            return transport_type
        if len(segments) < 2 or segments[-2] not in _PROTOCOLS:
            raise HandshakeError(
                HTTPStatus.NOT_FOUND, "Expected a path that ends with /amps/ and a message type."
            )
        requested = segments[-1]
        if transport_type is not None and requested != transport_type:
            raise HandshakeError(
                HTTPStatus.NOT_FOUND,
                f"This transport speaks {transport_type} only, not {requested!r}.",
            )
        if requested not in self.message_types:
            expected = ", ".join(sorted(self.message_types))
            raise HandshakeError(
                HTTPStatus.NOT_FOUND,
                f"There is no message type {requested!r} here, expected one of {expected}.",
            )
        return requested

    def _check_credentials(
        self, connection_context: ConnectionContext, credentials: LogonCredentials | None
    ) -> AnswerOrFuture[HandshakeResult | HandshakeError]:
        if self.www_authenticate is None:
            credentials_authenticator = _HandshakeCredentials(
                connection_context.authenticator, credentials
            )
            return HandshakeResult(
                replace(connection_context, authenticator=credentials_authenticator)
            )
        if credentials is None:
            raise self._make_refusal("Credentials are required.")

        def to_result(admission: Admission) -> HandshakeResult | HandshakeError:
            if admission.granted:
                admitted = replace(connection_context, authenticator=FixedAuthenticator(admission))
                return HandshakeResult(admitted, proof_headers(self.www_authenticate, admission))
            detail = admission.detail or admission.reason
            return self._make_refusal(
                "The credentials are not accepted.", (credentials.user, detail)
            )

        return mapped(
            connection_context.authenticator.begin_logon().authenticate(credentials), to_result
        )

    def _make_refusal(self, text: str, logon: tuple[str, str] | None = None) -> HandshakeError:
        challenge = (("WWW-Authenticate", self.www_authenticate or ""),)
        return HandshakeError(HTTPStatus.UNAUTHORIZED, text, challenge, logon)


@dataclass(frozen=True, slots=True)
class _HandshakeCredentials(AuthenticatorWithoutScram):
    """Completes logons without credentials by the credentials of the handshake.

    The handshake itself counts as a logon, so that commands may follow it at once.
    """

    authenticator: LogonAuthenticator
    credentials: LogonCredentials | None

    def begin_logon(self) -> LogonExchange:
        """See `LogonAuthenticator`."""
        return _CredentialExchange(self.authenticator.begin_logon(), self.credentials)

    def forget(self) -> None:
        """See `LogonAuthenticator`."""
        self.authenticator.forget()


@dataclass(frozen=True, slots=True)
class _CredentialExchange:
    """A logon that is completed by the credentials of the handshake."""

    exchange: LogonExchange
    credentials: LogonCredentials | None

    def authenticate(self, credentials: LogonCredentials) -> AnswerOrFuture[Admission]:
        """See `LogonExchange`."""
        handshake_credentials = self.credentials
        if handshake_credentials is not None and not credentials.user and not credentials.password:
            credentials = replace(handshake_credentials, origin=credentials.origin)
        return self.exchange.authenticate(replace(credentials, explicit=True))


def _credentials(headers: Headers, origin: LogonOrigin) -> LogonCredentials | None:
    """Return the credentials of an Authorization header; None if it has none that can be used.

    The token of the scheme Negotiate is passed to the authentication module as the password; the
    module extracts the user's name from it.
    """
    values = headers.get_all("Authorization")
    if len(values) != 1:
        return None
    scheme, _, text = values[0].strip().partition(" ")
    text = text.strip()
    if scheme.lower() == "negotiate" and text:
        return LogonCredentials("", text, explicit=True, origin=origin)
    if scheme.lower() != "basic":
        return None
    try:
        decoded = base64.b64decode(text, validate=True).decode()
    except (binascii.Error, ValueError):
        return None
    user, colon, password = decoded.partition(":")
    return LogonCredentials(user, password, explicit=True, origin=origin) if colon else None
