"""amps-action-on-disconnect-client: a client has disconnected."""

from actions.clients import OnClient


class OnDisconnectClient(OnClient):
    """Runs when a client disconnects."""

    event = "disconnect"
    includes_user = True
