"""Decides which entries go to a destination, and reads and writes the paths of entries.

An entry goes to a destination if its topic is replicated there and its body matches the filter, and
if it was published here or came from a group that PassThrough names; but not if the instance there
is on its path. A replicated entry's path names all instances that it has passed through, the one
that sent it here last.

Filters apply to messages: deletions and events of queues go wherever their topic does. Entries
without a topic, which are notices to publishers, go to every destination.

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
"""Returns for each body whether it goes."""

_RESERVED: Final = re.compile("[%,@]")
_ESCAPED: Final = re.compile("%([0-9A-F]{2})")
_MAX_REMEMBERED: Final = 10_000


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
    step = _escape(hop.name)
    if hop.group != hop.name:
        step += "@" + _escape(hop.group)
    return f"{path},{step}" if path else step


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
        pass_through: regular expressions over the groups that entries came from.

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

        They are empty if all bodies go, and None if the topic does not.
        """
        try:
            return self._filter_cache[topic]
        except KeyError:
            pass
        if len(self._filter_cache) >= _MAX_REMEMBERED:
            self._filter_cache.clear()
        covering = [route.filter for route in self._topics if route.covers(topic)]
        given = tuple(one for one in covering if one is not None)
        answer = None if not covering else () if len(given) < len(covering) else given
        if topic == NO_TOPIC:
            answer = ()
        self._filter_cache[topic] = answer
        return answer

    def includes(self, topic: JournalTopic) -> bool:
        """Return whether any message of a topic goes there."""
        return self.filters_for(topic) is not None

    def passes_group(self, group: str) -> bool:
        """Return whether entries from a group go there."""
        return any(matches(pattern, group) for pattern in self._pass_through)


class LinkRoute:
    """The routing to the instance at the other end of a link.

    Args:
        routes: the topics and groups that are replicated there.
        peer: name of that instance.
        is_return_allowed: whether entries go that have passed through that instance: it has lost
            its log, and is sent its former entries, whatever PassThrough says.
    """

    def __init__(self, routes: Routes, peer: str, *, is_return_allowed: bool = False) -> None:
        self.peer = peer
        self._routes = routes
        self._is_return_allowed = is_return_allowed
        self._path_cache: dict[str, bool] = {}

    def filters_for(self, topic: JournalTopic, path: str) -> tuple[RouteFilter, ...] | None:
        """Return the filters any of which must match a body; empty if all go, None if none does."""
        if path:
            passes = self._path_cache.get(path)
            if passes is None:
                if len(self._path_cache) >= _MAX_REMEMBERED:
                    self._path_cache.clear()
                passes = self._path_cache[path] = self._is_path_allowed(hops(path))
            if not passes:
                return None
        return self._routes.filters_for(topic)

    def _is_path_allowed(self, path: Sequence[Hop]) -> bool:
        if any(hop.name == self.peer for hop in path):
            return self._is_return_allowed
        return self._routes.passes_group(path[-1].group)


def filter_batch(run: EntryBatch, way: LinkRoute) -> EntryBatch:
    """Return the part of a run that is sent; a body goes if any filter accepts it.

    Filters apply to messages only: other entries go unfiltered.
    """
    filters = way.filters_for(run.topic, run.origin.path) if run.rows else None
    if filters is None:
        return run.pick(())
    if not filters:
        return run
    asked = [place for place, row in enumerate(run.rows) if row[KIND] in MESSAGES]
    bodies = {place: run.data[place][: run.rows[place][BODY_LENGTH]] for place in asked}
    for one in filters:
        places = list(bodies)
        answers = one(run.topic, list(bodies.values()))
        for place, answer in zip(places, answers, strict=True):
            if answer:
                del bodies[place]
        if not bodies:
            return run
    return run.pick([place for place in range(len(run.rows)) if place not in bodies])
