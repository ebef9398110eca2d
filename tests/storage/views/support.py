"""Views without a server: definitions, and an engine that has them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from config_schema.compile.references import parse_join
from config_schema.spec import JoinSpec, TopicRef, TopicSpec, ViewSpec
from server.storage.sow.query.query import QuerySpec
from tests.engine.support import Core
from tests.storage.sow.support import HERE, topic_spec


def topic(name: str, message_type: str = "json") -> TopicSpec:
    """A topic whose records may expire."""
    return topic_spec("/id", name=name, message_type=message_type, expiration_enabled=True)


def view(
    name: str,
    source: str | Sequence[str],
    projection: str,
    grouping: str,
    *,
    message_type: str = "json",
    filter_: str | None = None,
    inline: bool = False,
    nulls_match: bool = False,
    hash_indexes: tuple[tuple[str, ...], ...] = (),
) -> ViewSpec:
    """A view.

    Args:
        name: its name.
        source: its underlying topic (with its type after a colon), or its joins.
        projection: its fields, with semicolons between them.
        grouping: what it is grouped by, with semicolons between.
        message_type: the type of its messages.
        filter_: its filter.
        inline: whether it is conflated.
        nulls_match: whether NULL equals NULL in joins.
        hash_indexes: its hash indexes.
    """
    joins: list[JoinSpec] = []
    if isinstance(source, str):
        source_name, _, source_type = source.partition(":")
        underlying = {TopicRef(source_name, source_type or message_type): None}
    else:
        underlying = {}
        for text in source:
            sides = parse_join(text, message_type)
            assert sides is not None
            underlying |= dict.fromkeys(side.topic for side in sides)
            joins.append(JoinSpec(*sides, HERE))
    return ViewSpec(
        name=name,
        message_type=message_type,
        underlying=tuple(underlying),
        joins=tuple(joins),
        projection=tuple(text.strip() for text in projection.split(";")),
        grouping=tuple(text.strip() for text in grouping.split(";")),
        filter=filter_,
        key_domain=name,
        inline_conflation=inline,
        join_null_equivalency=nulls_match,
        hash_indexes=hash_indexes,
        name_has_regex_characters=False,
        location=HERE,
    )


def bodies(core: Core, name: str, message_type: str = "json") -> dict[str, bytes]:
    """The records of a topic: bodies by SOW key."""
    keeper = core.engine.sow_registry.find_configured(TopicRef(name, message_type))
    assert keeper is not None
    query = keeper.query(QuerySpec(), 0)
    return {record.key: record.body for slice_ in query for record in slice_}


def records(core: Core, name: str) -> list[dict[str, Any]]:
    """The records of a JSON topic."""
    return [json.loads(body) for body in bodies(core, name).values()]


def restarted(core: Core, topics: Sequence[TopicSpec], views: Sequence[ViewSpec]) -> Core:
    """Another engine whose topics have the records of those of `core`, as after a restart."""
    again = Core()
    again.clock.time = core.clock.time
    again.keep(*topics)
    for spec in topics:
        old, new = (
            core.engine.sow_registry.find_configured(spec.ref),
            again.engine.sow_registry.find_configured(spec.ref),
        )
        assert old is not None
        assert new is not None
        for _, row in old.table.store.identities():
            new.table.put(old.table.store.read_record(row))
    again.derive(*views)
    return again
