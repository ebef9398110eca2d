"""Connects and logs on a client as the options specify."""

from __future__ import annotations

import getpass
import importlib
import os
import shlex
import ssl
import uuid
from collections.abc import Callable, Mapping
from typing import Final

from amperage.client import (
    Authenticator,
    Backoff,
    Client,
    CommandError,
    HAClient,
    LogonError,
    PasswordAuthenticator,
    SecretAuthenticator,
    SecretCommand,
    SecretFile,
    SecretSource,
    SecretVariable,
    ServerChooser,
    ServerUri,
    TlsFileError,
    make_ssl_context,
    parse_uri,
)
from amperage.client.sequence_numbers import RefusalListener
from amperage.client.uri import AMPS
from server.cli.spark.options import SparkSettings, UsageError

_TRUST_STORE: Final = "-Djavax.net.ssl.trustStore="
_LOGON_OPTIONS: Final = "ack_conflation=10ms"
"""Limits the time that a publisher waits for the last of the acknowledgements."""
_RECONNECT_TIMEOUT_S: Final = 30.0
"""Timeout in seconds for one of several servers to come back."""
_SECRETS: Final[Mapping[str, Callable[[str], SecretSource]]] = {
    "passwordcmd": SecretCommand,
    "passwordenv": SecretVariable,
    "passwordfile": SecretFile,
}
"""Sources of a password, by option."""
_DEFAULT_FACTORY: Final = "com.crankuptheamps.spark.DefaultAuthenticatorFactory"
_NO_TYPE: Final = "invalid message type"
_HINT: Final = "; name it with -type, such as -type json"


class RefusedLogonError(Exception):
    """The server refused the logon; the message has the address, the user and the reason."""


def connect(
    settings: SparkSettings, server: str, on_refused: RefusalListener | None = None
) -> Client | HAClient:
    """Connect and log on; with several servers, stay connected to one of them.

    Args:
        settings: the command line.
        server: host:port or the path of a socket, optionally after user:password@; or several of
            these, separated by commas.
        on_refused: callback for each published message that the server refuses.

    Raises:
        UsageError: the options make no usable connection.
        ConnectError: no connection can be made.
        RefusedLogonError: the server refused the logon.
    """
    uris = server_uris(settings, server)
    name = f"spark-{getpass.getuser()}-{uuid.uuid4().hex[:12]}"
    authenticator = _authenticator(settings)
    ssl_context = _ssl_context(settings, uris[0])
    logon_options = None if on_refused is None else _LOGON_OPTIONS
    if len(uris) > 1:
        staying = HAClient(
            ServerChooser(uris, "in_order"),
            name,
            backoff=Backoff(longest=1.0, seconds=_RECONNECT_TIMEOUT_S),
            authenticator=authenticator,
            ssl_context=ssl_context,
            on_refused=on_refused,
            logon_options=None if logon_options is None else {"options": logon_options},
            timeout=_RECONNECT_TIMEOUT_S,
        )
        staying.connect()
        return staying
    (uri,) = uris
    client = Client(
        name, authenticator=authenticator, ssl_context=ssl_context, on_refused=on_refused
    )
    client.connect(uri)
    try:
        client.logon(options=logon_options)
    except LogonError as error:
        client.close()
        raise RefusedLogonError(
            f"Unable to log on to AMPS at {uri.address} as {uri.user}: {explain(error)}"
            f"{_HINT if error.reason == _NO_TYPE and not settings.type else ''}"
        ) from None
    except BaseException:
        client.close()
        raise
    return client


def server_uris(settings: SparkSettings, server: str) -> list[ServerUri]:
    """Return the URIs of the servers.

    A URI without a user logs on as the operating system's user.

    Args:
        settings: the command line.
        server: see `connect`.
    """
    if settings.urischeme == "unix":
        return [_server_uri(settings, server)]
    return [_server_uri(settings, address.strip()) for address in server.split(",")]


def _server_uri(settings: SparkSettings, server: str) -> ServerUri:
    scheme = settings.urischeme or ("tcps" if settings.secure else "tcp")
    if settings.proto != AMPS:
        _check_legacy(settings, scheme)
    parameters = [settings.uriopts] if settings.uriopts else []
    if scheme == "unix":  # the path is that of the socket
        address = _socket_address(server)
        parameters += [f"message_type={settings.type}"] if settings.type else []
    else:
        user = "" if "@" in server else f"{getpass.getuser()}@"
        address = f"{user}{server}/{settings.proto}{f'/{settings.type}' if settings.type else ''}"
    query = f"?{'&'.join(parameters)}" if parameters else ""
    return parse_uri(f"{scheme}://{address}{query}")


def _check_legacy(settings: SparkSettings, scheme: str) -> None:
    """Check that a legacy protocol supports the options."""
    if scheme not in ("tcp", "tcps"):
        raise UsageError(f"-proto {settings.proto} goes with tcp and tcps, not with {scheme}")
    if settings.orderby is not None:
        raise UsageError(f"-orderby needs -proto amps: {settings.proto} has no field for it")


def _socket_address(server: str) -> str:
    """Return user and absolute path of a socket, as they appear in a URI."""
    first, slash, remainder = server.partition("/")
    credentials, at, directory = first.rpartition("@")
    path = os.path.abspath(f"{directory}{slash}{remainder}")
    user = credentials if at else getpass.getuser()
    return f"{user}@{path.replace('?', '%3F').replace('#', '%23')}"


def explain(error: CommandError) -> str:
    """Return the server's reason, without the command's name."""
    return f"{error.reason}: {error.detail}" if error.detail else error.reason


def _authenticator(settings: SparkSettings) -> Authenticator:
    """Return the authenticator for the source of credentials that the options name."""
    sources = {name: getattr(settings, name) for name in ("authenticator", *_SECRETS)}
    if sources["authenticator"] == _DEFAULT_FACTORY:
        del sources["authenticator"]
    sources_given = [name for name, source in sources.items() if source is not None]
    if len(sources_given) > 1:
        raise UsageError(f"-{' and -'.join(sources_given)} are given: expected one of them")
    if not sources_given:
        return PasswordAuthenticator()
    (name,) = sources_given
    if name == "authenticator":
        return _made_authenticator(sources[name])
    return SecretAuthenticator(_SECRETS[name](sources[name]))


def _made_authenticator(path: str) -> Authenticator:
    """Import the factory that a path names, and call it."""
    module_name, colon, factory_name = path.partition(":")
    if not colon:
        raise UsageError(
            f"-authenticator is {path!r}: expected a Python path, module:factory;"
            " factories written in Java cannot be loaded"
        )
    try:
        factory = getattr(importlib.import_module(module_name), factory_name)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"-authenticator is {path!r}: {error}") from None
    authenticator = factory()
    if not (hasattr(authenticator, "authenticate") and hasattr(authenticator, "retry")):
        raise UsageError(
            f"-authenticator is {path!r}: it makes no amperage.Authenticator"
            f" (methods authenticate and retry), but {authenticator!r}"
        )
    checked: Authenticator = authenticator
    return checked


def _ssl_context(settings: SparkSettings, uri: ServerUri) -> ssl.SSLContext | None:
    """Return the TLS context of the connection; None without TLS.

    Trusted are -cafile, else the trust store in AMPS_SPARK_OPTS, else the system's authorities.
    """
    files = {name: getattr(settings, name) for name in ("cafile", "certificate", "key")}
    options_given = [name for name, path in files.items() if path is not None]
    if not uri.is_encrypted:
        if options_given:
            raise UsageError(f"-{options_given[0]} is for connections with TLS: add -secure")
        return None
    if settings.key is not None and settings.certificate is None:
        raise UsageError("-key is given without the -certificate that it belongs to")
    if not options_given:
        return _context_of_trust_store()
    authorities = settings.cafile or _trust_store()
    try:
        return make_ssl_context(authorities, settings.certificate, settings.key)
    except TlsFileError as error:
        raise UsageError(str(error)) from None


def _trust_store() -> str | None:
    """Return the trust store that AMPS_SPARK_OPTS names."""
    words = shlex.split(os.environ.get("AMPS_SPARK_OPTS", ""))
    stores = [part.removeprefix(_TRUST_STORE) for part in words if part.startswith(_TRUST_STORE)]
    return stores[-1] if stores else None


def _context_of_trust_store() -> ssl.SSLContext:
    """Return a context with the trust store in AMPS_SPARK_OPTS, or the system's authorities."""
    store = _trust_store()
    try:
        return ssl.create_default_context(cafile=store)
    except ssl.SSLError:
        raise UsageError(
            f"the trust store {store} in AMPS_SPARK_OPTS holds no PEM certificates;"
            " export them with: keytool -exportcert -rfc -keystore STORE -alias NAME"
        ) from None
    except OSError as error:
        raise UsageError(
            f"cannot read the trust store {store} in AMPS_SPARK_OPTS: {error.strerror}"
        ) from None
