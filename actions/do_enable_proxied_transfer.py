"""amps-action-do-enable-proxied-transfer: a queue may deliver messages owned elsewhere."""

from typing import ClassVar

from actions.proxied_transfer import ChangeProxiedTransfer


class DoEnableProxiedTransfer(ChangeProxiedTransfer):
    """Enables proxied transfer."""

    enabled: ClassVar[bool] = True
