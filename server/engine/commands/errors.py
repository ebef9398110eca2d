"""The refusal of a command."""


class CommandRefusedError(Exception):
    """A command cannot be executed; its sender is notified, no other client is affected.

    Attributes:
        reason: the phrase that clients know (bad filter, invalid topic, not entitled ...).
        detail: the problem, and the expectation.
        disconnect_reason: the reason to disconnect the sender for, None to keep it connected.
    """

    def __init__(self, reason: str, detail: str, *, disconnect_reason: str | None = None) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail
        self.disconnect_reason = disconnect_reason
