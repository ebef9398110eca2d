"""amps-action-do-disable-proxied-transfer: a queue may not deliver messages owned elsewhere."""

from typing import ClassVar

from actions.without_subject import StepWithoutSubject


class DoDisableProxiedTransfer(StepWithoutSubject):
    """Disables proxied transfer."""

    name: ClassVar[str] = "amps-action-do-disable-proxied-transfer"
    subject: ClassVar[str] = "queueing"
