"""The names that expressions can use: message types, functions and the name of an instance."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from pipeline.errors import PipelineError
from pipeline.logs import StderrLog
from server.app.wiring.provision import (
    ProvisionError,
    message_type_modules,
    provision_functions,
    provision_message_types,
)
from server.expressions import built_in
from server.message_types.registry import MessageTypes

if TYPE_CHECKING:
    from config_schema.spec import InstanceSpec
    from server.expressions import Functions
    from server.message_types.base import MessageType


@dataclass(frozen=True)
class Environment:
    """Is sent to Spark's workers as plain data; its message types and functions are created there.

    Attributes:
        spec: the instance of the expressions; None for built-in names only.
        moment: the time of evaluation, in seconds since 1970; None for the present.
    """

    spec: InstanceSpec | None = None
    moment: float | None = None

    @cache  # noqa: B019 - there are a few of them, for as long as the process lives
    def message_type(self, name: str) -> MessageType:
        """Return a message type.

        Raises:
            MessageTypeError: there is none of that name.
            PipelineError: a message type of the configuration cannot be created, for example
                because a file of it is missing.
        """
        if self.spec is None:
            return MessageTypes().get(name)
        try:
            types = provision_message_types(self.spec)
        except ProvisionError as error:
            raise PipelineError(str(error)) from None
        return types[name] if name in types else MessageTypes().get(name)

    def module(self, name: str) -> str | None:
        """Return the module of a message type, which defines its body format; None if unknown."""
        return name if self.spec is None else message_type_modules(self.spec).get(name)

    @cache  # noqa: B019 - there are a few of them, for as long as the process lives
    def functions(self) -> Functions:
        """Return the functions that expressions may call."""
        if self.spec is None:
            return built_in(self._clock())
        return provision_functions(self.spec, StderrLog(), clock=self._clock())

    def _clock(self) -> Callable[[], float]:
        moment = self.moment
        return time.time if moment is None else lambda: moment
