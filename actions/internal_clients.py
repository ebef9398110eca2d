"""Steps that act as a client inside the server, and the messages that they make."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actions.module import ModuleProvisionError
from actions.value_escapes import body_template

if TYPE_CHECKING:
    from actions.context import VariableTemplate
    from actions.services import ActionServices
    from actions.step_options import StepOptions
    from server.engine.internal_client import InternalClient
    from server.message_types.base import MessageType


def client_of(services: ActionServices, options: StepOptions, name: str) -> InternalClient:
    """Create the client for a step.

    Args:
        services: the instance.
        options: the step's options, with the message type that the client speaks.
        name: its name.

    Raises:
        ModuleProvisionError: there is no such message type.
    """
    return services.make_client(name, message_type_of(services, options).name)


def body_of(services: ActionServices, options: StepOptions, name: str) -> VariableTemplate:
    """Return the template of an option that is a message, of the message type beside it.

    Args:
        services: the instance.
        options: the step's options.
        name: the option.

    Raises:
        ModuleProvisionError: there is no such message type.
    """
    return body_template(options.get(name) or "", message_type_of(services, options))


def message_type_of(services: ActionServices, options: StepOptions) -> MessageType:
    """Return the message type that a step's options name.

    Raises:
        ModuleProvisionError: there is no such message type.
    """
    name = options.get("MessageType") or ""
    message_type = services.engine.settings.message_types.get(name)
    if message_type is None:
        raise ModuleProvisionError(f"there is no message type {name!r}")
    return message_type
