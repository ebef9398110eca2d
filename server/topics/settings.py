"""The part of an instance's configuration that topics and commands use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from server.expressions import Functions
    from server.message_types.base import MessageType


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Settings of an instance for topics and commands.

    Attributes:
        instance_name: the instance's name.
        message_types: the message types that clients may speak, by name.
        message_type_modules: the module of each of these types, by the type's name.
        unified_fix_tags: the names of the types with events that have the FIX tags shared by all
            event topics.
        functions: the functions that expressions may call.
        regex_topics: whether topics with regular expression characters are expressions.
    """

    instance_name: str
    message_types: Mapping[str, MessageType]
    message_type_modules: Mapping[str, str]
    unified_fix_tags: frozenset[str]
    functions: Functions
    regex_topics: bool
