"""What expressions can refer to: the message types, functions and name of an instance."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from pipeline.logs import StandardError
from server.assembly.provision import provision_functions, provision_message_types
from server.expressions import built_in
from server.message_types.registry import MessageTypes

if TYPE_CHECKING:
    from config_schema.spec import InstanceSpec
    from server.expressions import Functions
    from server.message_types.base import MessageType


@dataclass(frozen=True)
class Environment:
    """Travels to Spark's workers as plain data; what it describes is made there.

    Attributes:
        spec: the instance whose expressions these are; None for what every instance has.
        moment: the time at which they are evaluated, in seconds since 1970; None for the present.
    """

    spec: InstanceSpec | None = None
    moment: float | None = None

    @cache  # noqa: B019 - there are a few of them, for as long as the process lives
    def message_type(self, name: str) -> MessageType:
        """Find a message type.

        Raises:
            MessageTypeError: there is none of that name.
        """
        if self.spec is None:
            return MessageTypes().get(name)
        types = provision_message_types(self.spec)
        return types[name] if name in types else MessageTypes().get(name)

    @cache  # noqa: B019 - there are a few of them, for as long as the process lives
    def functions(self) -> Functions:
        """What expressions may call."""
        if self.spec is None:
            return built_in(self._clock())
        return provision_functions(self.spec, StandardError(), clock=self._clock())

    def _clock(self) -> Callable[[], float]:
        moment = self.moment
        return time.time if moment is None else lambda: moment
