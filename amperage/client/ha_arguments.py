"""The arguments that both clients that stay connected are made with."""

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
    """Check what makes up a client that stays connected.

    Raises:
        TypeError: an argument is of a wrong type.
        ValueError: it has a value that it cannot have.
    """
    check_connection_arguments(authenticator, ssl_context)
    instance("backoff", backoff, Backoff)
    if heartbeat is not None:
        check_interval("heartbeat", heartbeat)
    methods("publish_store", publish_store, _PUBLISH_STORE)
    methods("bookmark_store", bookmark_store, _BOOKMARK_STORE)
