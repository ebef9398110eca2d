"""amps-action-on-offline-start: messages of a slow client begin to go to disk."""

from actions.clients import OnClient


class OnOfflineStart(OnClient):
    """Runs when a slow client goes offline."""

    event = "offline_start"
