"""amps-action-do-enable-transport: lets a transport listen again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actions.transport_switch import SwitchTransport

if TYPE_CHECKING:
    from server.app.wiring.transport_table import TransportTable


class DoEnableTransport(SwitchTransport):
    """Enables one transport, or all of them."""

    async def switch_transport(self, transports: TransportTable, name: str) -> None:
        """Enable one transport."""
        await transports.enable(name)
