"""The servers and credentials of `connect`: its argument, completed by environment variables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final, TypeAlias

from amperage.client.arguments import several
from amperage.client.authentication import Authenticator, SecretAuthenticator
from amperage.client.errors import CredentialsError, InvalidUriError
from amperage.client.secrets import SecretFile
from amperage.client.servers import Server, ServerChooser
from amperage.client.uri import ServerUri, parse_uri

URL_VARIABLE: Final = "AMPERAGE_URL"
"""The environment variable with the URIs of the servers, separated by commas."""

USER_VARIABLE: Final = "AMPERAGE_USER"
"""The environment variable with the user of servers whose URI names none."""

PASSWORD_VARIABLE: Final = "AMPERAGE_PASSWORD"  # noqa: S105 - the name of a variable
"""The environment variable with the password of that user."""

PASSWORD_FILE_VARIABLE: Final = "AMPERAGE_PASSWORD_FILE"  # noqa: S105 - the name of a variable
"""The environment variable with the path of a file that has the password."""

_Listed: TypeAlias = str | ServerUri | Server | Iterable[str | ServerUri | Server]

ServerList: TypeAlias = _Listed | ServerChooser
"""One server or several: a text with commas, a list, or a chooser."""

_BETWEEN_URIS: Final = re.compile(r"\s*,\s*(?=[a-z]+://)")
"""A comma before the scheme of another URI; a password may contain others."""


def servers_from(
    url: ServerList | None, environment: Mapping[str, str], *, has_authenticator: bool
) -> ServerChooser | list[Server]:
    """Return the servers to connect to.

    Args:
        url: the servers; None for the servers of the environment.
        environment: the environment variables. They add the user and the password to servers that
            have none, except to those of a chooser.
        has_authenticator: whether the caller provides the credentials, so that the environment's
            are not used.

    Raises:
        InvalidUriError: there is no server, or a URI is invalid.
        CredentialsError: the environment has two passwords, or a password without a user.
    """
    if isinstance(url, ServerChooser):
        return url
    servers = _listed(url, environment)
    if has_authenticator:
        return servers
    return [_with_credentials(server, environment) for server in servers]


def _listed(url: _Listed | None, environment: Mapping[str, str]) -> list[Server]:
    if url is None:
        text = environment.get(URL_VARIABLE, "").strip()
        if not text:
            raise InvalidUriError(
                f"no server: pass a URI, such as tcp://localhost:9007/amps/json, or set"
                f" {URL_VARIABLE}"
            )
        try:
            return _listed(text, {})
        except InvalidUriError as error:
            raise InvalidUriError(f"{URL_VARIABLE}: {error}") from None
    match url:
        case str():
            return [Server(parse_uri(uri)) for uri in _BETWEEN_URIS.split(url.strip())]
        case ServerUri():
            return [Server(url)]
        case Server():
            return [url]
    several("url", url, "URIs")
    servers = [server for one in url for server in _listed(one, {})]
    if not servers:
        raise InvalidUriError("url: expected at least one server")
    return servers


def _with_credentials(server: Server, environment: Mapping[str, str]) -> Server:
    uri = server.uri
    if server.authenticator is not None or uri.password is not None:
        return server
    user = environment.get(USER_VARIABLE) or None
    if uri.user is None:
        uri = replace(uri, user=user)
    elif user not in (None, uri.user):
        return server  # the password is another user's
    password = environment.get(PASSWORD_VARIABLE) or None
    path = environment.get(PASSWORD_FILE_VARIABLE) or None
    if password is not None and path is not None:
        raise CredentialsError(
            f"both {PASSWORD_VARIABLE} and {PASSWORD_FILE_VARIABLE} are set; set one of them"
        )
    if uri.user is None and (password is not None or path is not None):
        variable = PASSWORD_VARIABLE if path is None else PASSWORD_FILE_VARIABLE
        raise CredentialsError(
            f"{variable} is set without a user: set {USER_VARIABLE}, or name the user in the URI"
        )
    if path is None:
        return Server(replace(uri, password=password))
    authenticator: Authenticator = SecretAuthenticator(SecretFile(path))
    return Server(uri, authenticator)
