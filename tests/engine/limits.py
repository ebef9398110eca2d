"""Users who may see some messages only, and some of their fields."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from server.expressions import BUILTINS, ContextKind, parse
from server.expressions.backends.compile_message import compile_filter
from server.expressions.tree import paths
from server.message_types.registry import MessageTypes
from server.message_types.select_list import parse_selection
from server.security.entitlement import FixedEntitlement
from server.security.permission_document import make_document
from tests.engine.support import Core, CorePeer

_JSON = MessageTypes().get("json")


def log_on_limited(core: Core, rules: list[dict[str, Any]], name: str = "reader") -> CorePeer:
    """A new connection, logged on, whose user may do what a permission document says.

    Args:
        core: the engine.
        rules: the document's entries for topics.
        name: the client's name.
    """
    everything, document = core.entrance, make_document({"logon": True, "topic": rules}, BUILTINS)
    core.entrance = replace(everything, entitlement=FixedEntitlement(document))
    peer = core.log_on(name)
    core.entrance = everything
    return peer


def matches(filter_: str, body: bytes) -> bool:
    """Whether a message matches a filter, by itself."""
    expr = parse(filter_, ContextKind.FILTER, BUILTINS)
    return compile_filter(expr)(_JSON.extractor(paths(expr))(body))


def cut(select: str | None, body: bytes) -> bytes:
    """What a select list leaves of a message."""
    return body if select is None else _JSON.select(body, parse_selection(select))
