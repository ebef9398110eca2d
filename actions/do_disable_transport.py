"""amps-action-do-disable-transport: stops a transport and disconnects its clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actions.transport_switch import SwitchTransport

if TYPE_CHECKING:
    from server.app.wiring.transport_table import TransportTable


class DoDisableTransport(SwitchTransport):
    """Disables one transport, or all of them."""

    async def switch_transport(self, transports: TransportTable, name: str) -> None:
        """Disable one transport."""
        await transports.disable(name)
