"""Steps that act as a client inside the server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actions.module import ProvisionFailed

if TYPE_CHECKING:
    from actions.services import Services
    from config_schema.spec import Options
    from server.core.internal_client import InternalClient


def client_of(services: Services, options: Options, name: str) -> InternalClient:
    """Make the client for a step.

    Args:
        services: the instance.
        options: the step's options, with the message type that the client speaks.
        name: its name.

    Raises:
        ProvisionFailed: there is no such message type.
    """
    message_type = options.get("MessageType") or ""
    if message_type not in services.engine.settings.message_types:
        raise ProvisionFailed(f"there is no message type {message_type!r}")
    return services.client(name, message_type)
