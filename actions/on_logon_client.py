"""amps-action-on-logon-client: a client has logged on."""

from actions.clients import OnClient


class OnLogonClient(OnClient):
    """Runs when a client logs on."""

    event = "logon"
    includes_user = True
