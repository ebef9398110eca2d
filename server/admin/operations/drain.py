"""The drain of the instance, as operations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from config_schema.units import UnitError, parse_bool, parse_interval
from server.admin.operations.operation import (
    AdminOperation,
    OperationError,
    OperationGroup,
    OperationParameters,
)
from server.storage.sow.records import NANOSECONDS

if TYPE_CHECKING:
    from server.app.wiring.drain import InstanceDrain

_DEFAULT_TIMEOUT: Final = "60s"


def drain_group(drain: InstanceDrain, refusal: type[Exception]) -> OperationGroup:
    """Return the instance as an entry, with the state of its drain as its name.

    Args:
        drain: drains the instance.
        refusal: the exception that it raises if it cannot begin or end.
    """

    async def begin(_id: str, parameters: OperationParameters) -> str:
        try:
            timeout_s = parse_interval(parameters.get("timeout") or _DEFAULT_TIMEOUT) / NANOSECONDS
            is_forced = parse_bool(parameters.get("force") or "false")
            drain.begin(timeout_s, is_forced=is_forced)
        except (UnitError, refusal) as error:
            raise OperationError(f"The drain cannot begin: {error}.") from None
        return "The drain has begun."

    async def cancel(_id: str, _parameters: OperationParameters) -> str:
        try:
            drain.cancel()
        except refusal as error:
            raise OperationError(f"The drain cannot be cancelled: {error}.") from None
        return "The drain is cancelled."

    description = "take no clients, finish leases and acknowledgements, then stop"
    operations = (
        AdminOperation("begin", description, begin, audited_parameters=("timeout", "force")),
        AdminOperation("cancel", "serve again", cancel),
    )
    return OperationGroup(("drain",), operations, lambda: {"instance": drain.state})
