"""A view of a configuration, in a form for Spark's workers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from config_schema.spec import ViewSpec
from pipeline.expressions import Environment
from server.storage.views.definition import CompiledView

if TYPE_CHECKING:
    from server.message_types.base import MessageType


@dataclass(frozen=True)
class ViewDefinition:
    """Is sent to the workers as plain data, and compiled there, once per copy.

    Attributes:
        spec: the view.
        environment: the instance that it belongs to.
    """

    spec: ViewSpec
    environment: Environment

    def __getstate__(self) -> dict[str, object]:
        """Return the state without compiled parts."""
        return {"spec": self.spec, "environment": self.environment}

    @cached_property
    def compiled(self) -> CompiledView:
        """Its projection, filter and joins."""
        find = self.environment.message_type
        return CompiledView(
            self.spec, self.environment.functions(), lambda topic: find(topic.message_type)
        )

    @cached_property
    def message_type(self) -> MessageType:
        """The message type of the view."""
        return self.environment.message_type(self.spec.message_type)
