"""amps-action-do-enable-proxied-transfer: a queue may deliver messages owned elsewhere."""

from typing import ClassVar

from actions.without_subject import StepWithoutSubject


class DoEnableProxiedTransfer(StepWithoutSubject):
    """Enables proxied transfer."""

    name: ClassVar[str] = "amps-action-do-enable-proxied-transfer"
    subject: ClassVar[str] = "queueing"
