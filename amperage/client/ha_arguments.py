"""The arguments common to the blocking and the asyncio client that reconnect automatically."""

from __future__ import annotations

import ssl
from dataclasses import dataclass

from amperage.client.arguments import check_interval, instance, methods
from amperage.client.authentication import Authenticator, check_connection_arguments
from amperage.client.backoff import Backoff
from amperage.client.bookmarks import BookmarkStorage
from amperage.client.commands import LogonParameters
from amperage.client.publish_store import PublishStorage
from amperage.client.states import AsyncStateListener

_PUBLISH_STORE_METHODS = ("add", "commit", "persisted", "refused", "logged_on", "holds_up_to")
_BOOKMARK_STORE_METHODS = ("trail", "keep")


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """The options for connecting and logging on.

    Attributes:
        name: the client name.
        timeout: seconds to wait for the connection, and for each answer of the logon.
        authenticator: provides the credentials for servers without an authenticator of their own.
        ssl_context: for tcps and wss.
        logon_options: the options of each logon.
        on_state: a callback for changes of state.
    """

    name: str
    timeout: float
    authenticator: Authenticator
    ssl_context: ssl.SSLContext | None
    logon_options: LogonParameters
    on_state: AsyncStateListener | None


def check_ha_arguments(
    authenticator: Authenticator | None,
    ssl_context: ssl.SSLContext | None,
    backoff: Backoff | None,
    heartbeat: int | None,
    publish_store: PublishStorage | None,
    bookmark_store: BookmarkStorage | None,
) -> None:
    """Check the arguments of a client that reconnects automatically.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: an argument has an invalid value.
    """
    check_connection_arguments(authenticator, ssl_context)
    instance("backoff", backoff, Backoff)
    if heartbeat is not None:
        check_interval("heartbeat", heartbeat)
    methods("publish_store", publish_store, _PUBLISH_STORE_METHODS)
    methods("bookmark_store", bookmark_store, _BOOKMARK_STORE_METHODS)
