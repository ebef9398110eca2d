"""amps-action-do-disable-proxied-transfer: a queue may not deliver messages owned elsewhere."""

from typing import ClassVar

from actions.proxied_transfer import ChangeProxiedTransfer


class DoDisableProxiedTransfer(ChangeProxiedTransfer):
    """Disables proxied transfer."""

    enabled: ClassVar[bool] = False
