"""The arguments common to the blocking and the asyncio client that reconnect automatically."""

from __future__ import annotations

import ssl

from amperage.client.arguments import check_interval, instance, methods
from amperage.client.authentication import Authenticator, check_connection_arguments
from amperage.client.backoff import Backoff
from amperage.client.bookmarks import BookmarkStorage
from amperage.client.publish_store import PublishStorage

_PUBLISH_STORE = ("add", "commit", "persisted", "refused", "logged_on", "holds_up_to")
_BOOKMARK_STORE = ("trail", "keep")


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
    methods("publish_store", publish_store, _PUBLISH_STORE)
    methods("bookmark_store", bookmark_store, _BOOKMARK_STORE)
