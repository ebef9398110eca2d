"""The options of the module: how to reach a service, and the content of requests.

Source: AMPS User Guide, RESTful Authentication and Entitlements, Configuring AMPS to use Web
Service Authentication and Entitlements; Using HTTPS.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlsplit

from config_schema.units import parse_bool, parse_count, parse_interval
from server.security.authentication import LogonCredentials
from server.security.http_client import Endpoint, HttpTlsSettings, parse_endpoint
from server.security.http_client_options import read_tls, split_header

if TYPE_CHECKING:
    from config_schema.spec import Options

LIBRARY: Final = "libamps_http_entitlement.so"

DEFAULT_CONNECTION_TIMEOUT: Final = "2000"
DEFAULT_REQUEST_TIMEOUT: Final = "5000"
DEFAULT_RETRY_COUNT: Final = "0"

USER_NAME: Final = "{{USER_NAME}}"
TOKEN: Final = re.compile(r"\{\{\s*([^{}]*?)\s*\}\}")

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
TOKENS: Final[Mapping[str, Callable[[LogonCredentials], str]]] = {
    "AMPS_CLIENT_NAME": lambda shown: shown.origin.client_name,
    "AMPS_CONNECTION_NAME": lambda shown: shown.origin.connection_name,
    "AMPS_CORRELATION_ID": lambda shown: shown.origin.correlation_id,
    "AMPS_MESSAGE_TYPE": lambda shown: shown.origin.message_type,
    "AMPS_PASSWORD": lambda shown: shown.password,
    "AMPS_REMOTE_ADDRESS": lambda shown: shown.origin.address,
    "AMPS_USER_NAME": lambda shown: shown.user,
    "CORRELATION_ID": lambda shown: shown.origin.correlation_id,
    "USER_NAME": lambda shown: shown.user,
}
"""The tokens that an HTTPHeader may contain."""


@dataclass(frozen=True, slots=True)
class HttpEntitlementSettings:
    """The settings of a service. Uses of the module with equal settings share it.

    Attributes:
        endpoint: the service and the resource, with a placeholder for the user's name.
        display_url: the URL as written in the configuration, without its query.
        headers: names and values of further headers, with placeholders for tokens.
        tls: the TLS settings for https.
        connect_seconds: timeout of a connection attempt.
        request_seconds: timeout of a response.
        retries: the maximum number of retries.
        keeps_connections: whether connections are reused for several logons.
    """

    endpoint: Endpoint
    display_url: str
    headers: tuple[tuple[str, str], ...]
    tls: HttpTlsSettings
    connect_seconds: float
    request_seconds: float
    retries: int
    keeps_connections: bool

    def endpoint_of(self, user: str) -> Endpoint | None:
        """Return the endpoint for a user; None if the user's name would change the path."""
        target = self.endpoint.target.replace(USER_NAME, quote(user, safe=""))
        path, mark, query = target.partition("?")
        if any(step in (".", "..") for step in path.split("/")):
            return None
        return replace(self.endpoint, target=f"{path}{mark}{query}")

    def headers_of(self, credentials: LogonCredentials) -> list[tuple[str, bytes]]:
        """Return the further headers for a logon, each in one line for any input of a client."""
        return [(name, _filled(value, credentials)) for name, value in self.headers]


def _filled(template: str, credentials: LogonCredentials) -> bytes:
    def fill(match: re.Match[str]) -> str:
        token = TOKENS.get(match[1])
        return match[0] if token is None else token(credentials)

    value = _CONTROL.sub("", TOKEN.sub(fill, template)).strip()
    return value.encode("utf-8", "surrogatepass")


def read_settings(options: Options) -> HttpEntitlementSettings:
    """Read the options of a use, with the defaults of the loaded module.

    Raises:
        ValueError: one of them cannot be used; the text names it and gives the reason.
    """
    uri = options.get("ResourceURI") or ""
    try:
        endpoint = parse_endpoint(uri)
    except ValueError as error:
        raise ValueError(f"ResourceURI: {error}") from None
    return HttpEntitlementSettings(
        endpoint,
        uri.partition("?")[0],
        tuple(
            (name.lower(), value) for name, value in map(split_header, options.all("HTTPHeader"))
        ),
        read_tls(options),
        parse_count(options.get("ConnectionTimeout") or DEFAULT_CONNECTION_TIMEOUT) / 1_000,
        parse_count(options.get("RequestTimeout") or DEFAULT_REQUEST_TIMEOUT) / 1_000,
        parse_count(options.get("RetryCount") or DEFAULT_RETRY_COUNT),
        options.flag("ReuseConnections", default=False),
    )


def store_name(options: Options) -> str:
    """Return the name of the store of permissions for a use."""
    return options.get("CredentialStore") or options.get("ResourceURI") or ""


def is_entitlement_only(options: Options) -> bool:
    """Return whether another module authenticates."""
    text = options.get("EntitlementOnly")
    return text is not None and (not text.strip() or parse_bool(text))


def entitlement_seconds(options: Options) -> float | None:
    """Return the validity of permissions in seconds; None while the user has connections."""
    text = options.get("EntitlementTimeout")
    return None if text is None else parse_interval(text, "ms") / 1_000_000_000


def find_uri_problem(uri: str) -> str | None:
    """Return the problem of a ResourceURI; None if it can be used."""
    try:
        parse_endpoint(uri)
    except ValueError as error:
        return str(error)
    if "{{" in urlsplit(uri).netloc:
        return "the name of a user cannot say which host is asked: expected it in the path"
    unknown_names = [name for name in TOKEN.findall(uri) if name != "USER_NAME"]
    if "{{" in TOKEN.sub("", uri) or "}}" in TOKEN.sub("", uri):
        return (
            f"there is a variable in it that does not end, or does not begin: expected {USER_NAME}"
        )
    if unknown_names:
        return f"{{{{{unknown_names[0]}}}}} is not known: expected {USER_NAME}, or no variable"
    return None
