"""Why a command is not carried out."""


class CommandRefused(Exception):
    """A command cannot be carried out; its sender is told, nobody else is affected.

    Attributes:
        reason: the phrase that clients know (bad filter, invalid topic, not entitled ...).
        detail: what is wrong and what was expected.
        disconnect: the reason to disconnect the sender for, None to let it go on.
    """

    def __init__(self, reason: str, detail: str, *, disconnect: str | None = None) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail
        self.disconnect = disconnect
