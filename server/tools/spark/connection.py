"""From options to a connected, logged-on client."""

from __future__ import annotations

import getpass
import importlib
import os
import shlex
import ssl
import uuid
from typing import Final

from client import (
    Authenticator,
    Backoff,
    Client,
    CommandError,
    HAClient,
    LogonError,
    PasswordAuthenticator,
    ServerChooser,
    ServerUri,
    parse_uri,
)
from client.numbering import RefusalListener
from server.tools.spark.options import Settings, UsageError

_TRUST_STORE: Final = "-Djavax.net.ssl.trustStore="
_LOGON_OPTIONS: Final = "ack_conflation=10ms"
"""Have whoever publishes wait for the last of the acknowledgements no longer than that."""
_PATIENCE: Final = 30.0
"""Seconds for one of several servers to come back."""
_DEFAULT_FACTORY: Final = "com.crankuptheamps.spark.DefaultAuthenticatorFactory"


class RefusedLogonError(Exception):
    """The server refused the logon; the message says where, as whom and why."""


def connect(
    settings: Settings, server: str, on_refused: RefusalListener | None = None
) -> Client | HAClient:
    """Connect and log on; with several servers, stay connected to one of them.

    Args:
        settings: the command line.
        server: host:port or the path of a socket, perhaps with user:password@ before it; or
            several of the former, with commas between.
        on_refused: told about each published message that the server refuses.

    Raises:
        UsageError: the options make no usable connection.
        ConnectError: there is no connection to be had.
        RefusedLogonError: the server refused the logon.
    """
    uris = server_uris(settings, server)
    name = f"spark-{getpass.getuser()}-{uuid.uuid4().hex[:12]}"
    authenticator = _authenticator(settings.authenticator)
    ssl_context = _ssl_context() if uris[0].is_encrypted else None
    logon_options = None if on_refused is None else _LOGON_OPTIONS
    if len(uris) > 1:
        staying = HAClient(
            ServerChooser(uris, "in_order"),
            name,
            backoff=Backoff(longest=1.0, seconds=_PATIENCE),
            authenticator=authenticator,
            ssl_context=ssl_context,
            on_refused=on_refused,
            logon_options=None if logon_options is None else {"options": logon_options},
            timeout=_PATIENCE,
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
        ) from None
    except BaseException:
        client.close()
        raise
    return client


def server_uris(settings: Settings, server: str) -> list[ServerUri]:
    """Put the URIs together.

    Without a user in it, the operating system's user logs on.

    Args:
        settings: the command line.
        server: see `connect`.
    """
    if settings.urischeme == "unix":
        return [_server_uri(settings, server)]
    return [_server_uri(settings, one.strip()) for one in server.split(",")]


def _server_uri(settings: Settings, server: str) -> ServerUri:
    scheme = settings.urischeme or ("tcps" if settings.secure else "tcp")
    parameters = [settings.uriopts] if settings.uriopts else []
    if scheme == "unix":  # the path is that of the socket
        address = _socket_address(server)
        parameters += [f"message_type={settings.type}"] if settings.type else []
    else:
        user = "" if "@" in server else f"{getpass.getuser()}@"
        address = f"{user}{server}/amps{f'/{settings.type}' if settings.type else ''}"
    query = f"?{'&'.join(parameters)}" if parameters else ""
    return parse_uri(f"{scheme}://{address}{query}")


def _socket_address(server: str) -> str:
    """User and absolute path of a socket, as they stand in a URI."""
    first, slash, rest = server.partition("/")
    credentials, at, directory = first.rpartition("@")
    path = os.path.abspath(f"{directory}{slash}{rest}")
    user = credentials if at else getpass.getuser()
    return f"{user}@{path.replace('?', '%3F').replace('#', '%23')}"


def explain(error: CommandError) -> str:
    """What the server answered, without the command's name."""
    return f"{error.reason}: {error.detail}" if error.detail else error.reason


def _authenticator(path: str | None) -> Authenticator:
    """Import the factory that a path names, and ask it for an authenticator."""
    if path is None or path == _DEFAULT_FACTORY:
        return PasswordAuthenticator()
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
            f"-authenticator is {path!r}: it makes no client.Authenticator"
            f" (methods authenticate and retry), but {authenticator!r}"
        )
    made: Authenticator = authenticator
    return made


def _ssl_context() -> ssl.SSLContext:
    """The authorities of the trust store in AMPS_SPARK_OPTS, or those of the system."""
    words = shlex.split(os.environ.get("AMPS_SPARK_OPTS", ""))
    stores = [word.removeprefix(_TRUST_STORE) for word in words if word.startswith(_TRUST_STORE)]
    if not stores:
        return ssl.create_default_context()
    try:
        return ssl.create_default_context(cafile=stores[-1])
    except ssl.SSLError:
        raise UsageError(
            f"the trust store {stores[-1]} in AMPS_SPARK_OPTS holds no PEM certificates;"
            " export them with: keytool -exportcert -rfc -keystore STORE -alias NAME"
        ) from None
    except OSError as error:
        raise UsageError(
            f"cannot read the trust store {stores[-1]} in AMPS_SPARK_OPTS: {error.strerror}"
        ) from None
