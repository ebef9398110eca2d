"""What of an instance's configuration topics and commands go by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from server.expressions import Functions
    from server.message_types.base import MessageType


@dataclass(frozen=True, slots=True)
class Settings:
    """See above.

    Attributes:
        instance_name: the instance's name.
        message_types: the message types that clients may speak, by name.
        message_type_modules: the module of each of these types, by the type's name.
        unified_fix_tags: the names of the types whose events have the FIX tags that all event
            topics share.
        functions: what expressions may call.
        regex_topics: whether topics with regular expression characters are expressions.
    """

    instance_name: str
    message_types: Mapping[str, MessageType]
    message_type_modules: Mapping[str, str]
    unified_fix_tags: frozenset[str]
    functions: Functions
    regex_topics: bool
