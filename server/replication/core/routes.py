"""Decides which entries are sent to a destination, and reads and writes the paths of entries.

An entry is sent to a destination if its topic is replicated there and its body matches the filter,
and if it was published here or arrived from a group that PassThrough names; but not if the instance
there is on its path. A replicated entry's path names all instances that it has passed through, the
one that sent it here last.

Filters apply to messages: deletions and events of queues are sent wherever their topic is. Entries
without a topic, which are notices to publishers, are sent to every destination.

Source: AMPS User Guide, Understanding Replication Message Routing; PassThrough Replication.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from config_schema.regex import has_regex_characters, matches
from server.storage.journal import MESSAGES, EntryBatch, JournalTopic
from server.storage.journal.format.entry import NO_TOPIC
from server.storage.journal.format.layout import BODY_LENGTH, KIND

RouteFilter: TypeAlias = Callable[[JournalTopic, Sequence[bytes]], Sequence[bool]]
"""Returns for each body whether it is sent."""

_RESERVED: Final = re.compile("[%,@]")
_ESCAPED: Final = re.compile("%([0-9A-F]{2})")
_MAX_CACHED: Final = 10_000


class Hop(NamedTuple):
    """An instance that an entry has passed through."""

    name: str
    group: str


@lru_cache(maxsize=4096)
def hops(path: str) -> tuple[Hop, ...]:
    """Return the instances on a path, the first one first."""
    return tuple(map(_hop, path.split(","))) if path else ()


def _hop(text: str) -> Hop:
    name, _, group = text.partition("@")
    return Hop(_unescape(name), _unescape(group or name))


@lru_cache(maxsize=4096)
def append_hop(path: str, hop: Hop) -> str:
    """Return a path with one more instance at its end.

    The group is included if it differs from the name of the instance. The characters % , and @ in
    names are written as % and two hexadecimal digits.
    """
    text = _escape(hop.name)
    if hop.group != hop.name:
        text += "@" + _escape(hop.group)
    return f"{path},{text}" if path else text


def _escape(name: str) -> str:
    return _RESERVED.sub(lambda match: f"%{ord(match[0]):02X}", name)


def _unescape(text: str) -> str:
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text)


class TopicRoute(NamedTuple):
    """A Topic of a Destination.

    Attributes:
        message_type: of the topics.
        name: their name, or a regular expression.
        filter: the filter that their messages must match; None for all.
        excluded_topics: topics that are excluded, though an expression may match their names.
    """

    message_type: str
    name: str
    filter: RouteFilter | None = None
    excluded_topics: Collection[str] = ()

    def covers(self, topic: JournalTopic) -> bool:
        """Return whether it includes a topic."""
        if topic.message_type != self.message_type or topic.name in self.excluded_topics:
            return False
        return topic.name == self.name or (
            has_regex_characters(self.name) and matches(self.name, topic.name)
        )


class Routes:
    """The topics and groups that are replicated to a destination.

    Args:
        topics: its Topics.
        pass_through: regular expressions over the groups that entries have arrived from.

    Attributes:
        has_filters: whether the routing depends on bodies.
    """

    def __init__(self, topics: Sequence[TopicRoute], pass_through: Sequence[str] = ()) -> None:
        self.has_filters: Final = any(route.filter is not None for route in topics)
        self._topics = topics
        self._pass_through = pass_through
        self._filter_cache: dict[JournalTopic, tuple[RouteFilter, ...] | None] = {}

    def filters_for(self, topic: JournalTopic) -> tuple[RouteFilter, ...] | None:
        """Return the filters any of which a body has to match.

        They are empty if all bodies are sent, and None if the topic is not.
        """
        try:
            return self._filter_cache[topic]
        except KeyError:
            pass
        if len(self._filter_cache) >= _MAX_CACHED:
            self._filter_cache.clear()
        filters = [route.filter for route in self._topics if route.covers(topic)]
        present = tuple(route_filter for route_filter in filters if route_filter is not None)
        result = None if not filters else () if len(present) < len(filters) else present
        if topic == NO_TOPIC:
            result = ()
        self._filter_cache[topic] = result
        return result

    def includes(self, topic: JournalTopic) -> bool:
        """Return whether any message of a topic is sent there."""
        return self.filters_for(topic) is not None

    def passes_group(self, group: str) -> bool:
        """Return whether entries from a group are sent there."""
        return any(matches(pattern, group) for pattern in self._pass_through)


class LinkRoute:
    """The routing to the instance at the other end of a link.

    Args:
        routes: the topics and groups that are replicated there.
        peer: name of that instance.
        is_return_allowed: whether entries that have passed through that instance are sent: it has
            lost its log, and is sent its former entries, regardless of PassThrough.
    """

    def __init__(self, routes: Routes, peer: str, *, is_return_allowed: bool = False) -> None:
        self.peer = peer
        self._routes = routes
        self._is_return_allowed = is_return_allowed
        self._path_cache: dict[str, bool] = {}

    def filters_for(self, topic: JournalTopic, path: str) -> tuple[RouteFilter, ...] | None:
        """Return the filters any of which must match a body; empty if all go, None if none does."""
        if path:
            is_allowed = self._path_cache.get(path)
            if is_allowed is None:
                if len(self._path_cache) >= _MAX_CACHED:
                    self._path_cache.clear()
                is_allowed = self._path_cache[path] = self._is_path_allowed(hops(path))
            if not is_allowed:
                return None
        return self._routes.filters_for(topic)

    def _is_path_allowed(self, path: Sequence[Hop]) -> bool:
        if any(hop.name == self.peer for hop in path):
            return self._is_return_allowed
        return self._routes.passes_group(path[-1].group)


def filter_batch(batch: EntryBatch, route: LinkRoute) -> EntryBatch:
    """Return the part of a batch that is sent; a body is sent if any filter accepts it.

    Filters apply to messages only: other entries go unfiltered.
    """
    filters = route.filters_for(batch.topic, batch.origin.path) if batch.rows else None
    if filters is None:
        return batch.pick(())
    if not filters:
        return batch
    positions = [position for position, row in enumerate(batch.rows) if row[KIND] in MESSAGES]
    bodies = {
        position: batch.data[position][: batch.rows[position][BODY_LENGTH]]
        for position in positions
    }
    for route_filter in filters:
        remaining = list(bodies)
        accepted = route_filter(batch.topic, list(bodies.values()))
        for position, is_accepted in zip(remaining, accepted, strict=True):
            if is_accepted:
                del bodies[position]
        if not bodies:
            return batch
    return batch.pick([position for position in range(len(batch.rows)) if position not in bodies])
