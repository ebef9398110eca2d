"""The options of the module: how a service is asked, and what is said to it.

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
from server.security.authentication import Credentials
from server.security.web import Endpoint, WebTls, parse_endpoint
from server.security.web_options import read_tls, split_header

if TYPE_CHECKING:
    from config_schema.spec import Options

LIBRARY: Final = "libamps_http_entitlement.so"

DEFAULT_CONNECTION_TIMEOUT: Final = "2000"
DEFAULT_REQUEST_TIMEOUT: Final = "5000"
DEFAULT_RETRY_COUNT: Final = "0"

USER_NAME: Final = "{{USER_NAME}}"
TOKEN: Final = re.compile(r"\{\{\s*([^{}]*?)\s*\}\}")

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
TOKENS: Final[Mapping[str, Callable[[Credentials], str]]] = {
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
"""What an HTTPHeader may have in it."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How a service is asked. Uses of the module that have the same ask together.

    Attributes:
        endpoint: the service, and what is asked for, with a place for the user's name.
        shown: the same as it is written in the configuration, without its query.
        headers: names and values of further headers, with places for tokens.
        tls: how https is spoken.
        connect_seconds: how long a connection may take to be made.
        request_seconds: how long an answer may take.
        retries: how often it is tried again.
        keeps_connections: whether connections are used for more than one logon.
    """

    endpoint: Endpoint
    shown: str
    headers: tuple[tuple[str, str], ...]
    tls: WebTls
    connect_seconds: float
    request_seconds: float
    retries: int
    keeps_connections: bool

    def endpoint_of(self, user: str) -> Endpoint | None:
        """What is asked for a user; None if their name would make another path of it."""
        target = self.endpoint.target.replace(USER_NAME, quote(user, safe=""))
        path, mark, query = target.partition("?")
        if any(step in (".", "..") for step in path.split("/")):
            return None
        return replace(self.endpoint, target=f"{path}{mark}{query}")

    def headers_of(self, credentials: Credentials) -> list[tuple[str, bytes]]:
        """The further headers for a logon: in one line each, whatever a client says."""
        return [(name, _filled(value, credentials)) for name, value in self.headers]


def _filled(template: str, credentials: Credentials) -> bytes:
    def fill(match: re.Match[str]) -> str:
        token = TOKENS.get(match[1])
        return match[0] if token is None else token(credentials)

    value = _CONTROL.sub("", TOKEN.sub(fill, template)).strip()
    return value.encode("utf-8", "surrogatepass")


def read_settings(options: Options) -> Settings:
    """Read the options of a use, those that its module was loaded with included.

    Raises:
        ValueError: one of them cannot be used; the text says which and why.
    """
    uri = options.get("ResourceURI") or ""
    try:
        endpoint = parse_endpoint(uri)
    except ValueError as error:
        raise ValueError(f"ResourceURI: {error}") from None
    return Settings(
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
    """The store of permissions that a use has a part in."""
    return options.get("CredentialStore") or options.get("ResourceURI") or ""


def is_entitlement_only(options: Options) -> bool:
    """Whether others authenticate."""
    text = options.get("EntitlementOnly")
    return text is not None and (not text.strip() or parse_bool(text))


def entitlement_seconds(options: Options) -> float | None:
    """How long permissions are taken for valid; None for as long as their user is there."""
    text = options.get("EntitlementTimeout")
    return None if text is None else parse_interval(text, "ms") / 1_000_000_000


def problem_of_uri(uri: str) -> str | None:
    """What is wrong with a ResourceURI; None if it can be used."""
    try:
        parse_endpoint(uri)
    except ValueError as error:
        return str(error)
    if "{{" in urlsplit(uri).netloc:
        return "the name of a user cannot say which host is asked: expected it in the path"
    strange = [name for name in TOKEN.findall(uri) if name != "USER_NAME"]
    if "{{" in TOKEN.sub("", uri) or "}}" in TOKEN.sub("", uri):
        return (
            f"there is a variable in it that does not end, or does not begin: expected {USER_NAME}"
        )
    if strange:
        return f"{{{{{strange[0]}}}}} is not known: expected {USER_NAME}, or no variable"
    return None
