"""amps-action-on-logon-client: a client has said who it is."""

from actions.clients import OnClient


class OnLogonClient(OnClient):
    """Runs when a client logs on."""

    event = "logon"
    tells_user = True
