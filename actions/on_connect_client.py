"""amps-action-on-connect-client: a connection has been accepted."""

from actions.clients import OnClient


class OnConnectClient(OnClient):
    """Runs when a client connects."""

    event = "connect"
