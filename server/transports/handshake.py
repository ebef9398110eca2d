"""The opening handshake of a websocket connection says what a logon says elsewhere.

The request's path ends with the protocol and the message type, `/any/path/amps/json`; credentials
come in its Authorization header. A logon command may follow, and gives the client its name.
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

from server.core.session import Entrance
from server.security.authentication import Admission, Authenticator, Credentials
from server.transports.origins import Origins

_PROTOCOLS: Final = ("amps", "json", "websocket")


class HandshakeRefused(Exception):
    """A connection cannot be opened. The text tells the peer why.

    Attributes:
        status: the HTTP status code.
        headers: further headers for the response.
    """

    def __init__(self, status: int, text: str, headers: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(text)
        self.status = status
        self.headers = headers


@dataclass(frozen=True, slots=True)
class Doorkeeper:
    """Decides on the opening handshakes of one transport.

    Attributes:
        entrance: what the transport grants.
        message_types: the names of the message types that may be spoken.
        www_authenticate: the challenge for requests without credentials (WWWAuthenticate); None
            if credentials may as well come with the logon.
        origins: the web pages that may connect (AccessControlAllowOrigin).
    """

    entrance: Entrance
    message_types: Collection[str]
    www_authenticate: str | None
    origins: Origins

    def admit(self, request: Request) -> Entrance:
        """Decide on a request.

        Returns:
            What the connection is granted.

        Raises:
            HandshakeRefused: the page that asks may not, the path cannot be used, or the
                credentials are not accepted.
        """
        self._check_origin(request.headers)
        message_type = self._message_type(request.path)
        authenticator = self._authenticate(_credentials(request.headers))
        return replace(self.entrance, message_type=message_type, authenticator=authenticator)

    def _check_origin(self, headers: Headers) -> None:
        for origin in headers.get_all("Origin"):
            if not self.origins.allow(origin):
                raise HandshakeRefused(
                    HTTPStatus.FORBIDDEN, f"Pages of {origin[:200]!r} may not connect."
                )

    def _message_type(self, path: str) -> str | None:
        """The message type that a path names, or the transport's own."""
        fixed = self.entrance.message_type
        words = [unquote(word) for word in urlsplit(path).path.split("/") if word]
        if not words or (len(words) == 1 and words[0] in _PROTOCOLS):
            return fixed
        if len(words) < 2 or words[-2] not in _PROTOCOLS:
            raise HandshakeRefused(
                HTTPStatus.NOT_FOUND, "Expected a path that ends with /amps/ and a message type."
            )
        wanted = words[-1]
        if fixed is not None and wanted != fixed:
            raise HandshakeRefused(
                HTTPStatus.NOT_FOUND, f"This transport speaks {fixed} only, not {wanted!r}."
            )
        if wanted not in self.message_types:
            expected = ", ".join(sorted(self.message_types))
            raise HandshakeRefused(
                HTTPStatus.NOT_FOUND,
                f"There is no message type {wanted!r} here, expected one of {expected}.",
            )
        return wanted

    def _authenticate(self, credentials: Credentials | None) -> Authenticator:
        if self.www_authenticate is None:
            return _CredentialsInHand(self.entrance.authenticator, credentials)
        challenge = (("WWW-Authenticate", self.www_authenticate),)
        if credentials is None:
            raise HandshakeRefused(HTTPStatus.UNAUTHORIZED, "Credentials are required.", challenge)
        admission = self.entrance.authenticator.authenticate(credentials)
        if not admission.granted:
            raise HandshakeRefused(
                HTTPStatus.UNAUTHORIZED, "The credentials are not accepted.", challenge
            )
        return _Admitted(admission)


@dataclass(frozen=True, slots=True)
class _Admitted:
    """Repeats what was decided in the handshake, whatever a logon says later."""

    admission: Admission

    def authenticate(self, credentials: Credentials) -> Admission:  # noqa: ARG002 - decided before
        """Decide on a logon."""
        return self.admission


@dataclass(frozen=True, slots=True)
class _CredentialsInHand:
    """Completes logons that bring no credentials by those of the handshake.

    The handshake itself counts as a logon, so that commands may follow it at once.
    """

    authenticator: Authenticator
    credentials: Credentials | None

    def authenticate(self, credentials: Credentials) -> Admission:
        """Decide on a logon."""
        if self.credentials is not None and not credentials.user and not credentials.password:
            credentials = self.credentials
        return self.authenticator.authenticate(replace(credentials, explicit=True))


def _credentials(headers: Headers) -> Credentials | None:
    """The credentials of an Authorization header.

    The token of the scheme Negotiate goes to the authentication module in place of a password; the
    module finds the user's name in it.
    """
    values = headers.get_all("Authorization")
    if len(values) != 1:
        return None
    scheme, _, text = values[0].strip().partition(" ")
    text = text.strip()
    if scheme.lower() == "negotiate" and text:
        return Credentials("", text, explicit=True)
    if scheme.lower() != "basic":
        return None
    try:
        decoded = base64.b64decode(text, validate=True).decode()
    except (binascii.Error, ValueError):
        return None
    user, colon, password = decoded.partition(":")
    return Credentials(user, password, explicit=True) if colon else None
