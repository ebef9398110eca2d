"""amps-action-on-offline-stop: a slow client has read the messages spilled to disk."""

from actions.clients import OnClient


class OnOfflineStop(OnClient):
    """Runs when a slow client has caught up."""

    event = "offline_stop"
