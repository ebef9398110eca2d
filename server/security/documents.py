"""Permission documents: what a user may do, written in JSON.

    {"logon": true, "replication-logon": false,
     "topic": [{"topic": "^orders", "read": "/desk = 7", "write": false, "select": "-/,+/id"}, ...],
     "admin": [{"topic": "^/amps", "read": true, "write": false}, ...],
     "replicated-topics": ["^orders"], "instances": ["^hub"], "user_name": "somebody else"}

Of a list the first entry counts whose topic is meant; whatever no entry speaks of is refused. A
name with characters of regular expressions is one, and matches anywhere. Fields that nobody knows
are refused, as is a filter that cannot be parsed: half a document would be a wrong one.

Source: AMPS User Guide, RESTful Authentication and Entitlements, Permissions Document Format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from server.expressions import ExpressionError, Kind, parse
from server.expressions.topic_names import TopicError, TopicSelector, select_topics
from server.message_types.selection import SelectionError, parse_selection
from server.security.permissions import Permission, Permit, undecided

if TYPE_CHECKING:
    from server.expressions.functions.registry import Functions

_MOST_REMEMBERED: Final = 10_000
"""Decisions on topics that are kept, so that a list is not gone through for each command."""

MOST_ENTRIES: Final = 5_000
"""Entries of a list of a document: each is looked at for every topic that its user comes to, and
its filters are parsed."""

KNOWN_FIELDS: Final = frozenset(
    {"logon", "replication-logon", "topic", "admin", "replicated-topics", "instances", "user_name"}
)
KNOWN_OF_RULE: Final = frozenset({"topic", "read", "write", "select"})


Place: TypeAlias = tuple[str | int, ...]
"""Where something stands in a document: names, and the numbers of entries from 0 on."""


def name_place(place: Place) -> str:
    """A place in words: `topic, entry 1: read`."""
    words = ""
    for step in place:
        if isinstance(step, int):
            words += f", entry {step + 1}"
        else:
            words += f": {step}" if words else step
    return words


class DocumentError(ValueError):
    """A document cannot be used. The text says what is wrong where.

    Attributes:
        place: where.
        problem: what.
    """

    def __init__(self, problem: str, place: Place = ()) -> None:
        super().__init__(f"{name_place(place)}: {problem}" if place else problem)
        self.place: Final = place
        self.problem: Final = problem


@dataclass(frozen=True, slots=True)
class Rule:
    """One entry of a list.

    Attributes:
        topics: what it is about.
        read: what is said to those who want to read.
        write: what is said to those who want to write.
    """

    topics: TopicSelector
    read: Permit
    write: Permit


NO_RULE: Final = Permit(False, rule="no entry is about it")
"""What is said where a document says nothing."""


class Remembering:
    """Permissions that are found out once for each topic: lists are long, and commands many."""

    def __init__(self) -> None:
        self._decided: dict[tuple[Permission, str], Permit] = {}

    def permit(self, permission: Permission, resource: str) -> Permit:
        """See `Permissions`."""
        key = permission, resource
        known = self._decided.get(key)
        if known is None:
            if len(self._decided) >= _MOST_REMEMBERED:
                self._decided.clear()
            known = self._decided[key] = self.find(permission, resource) or NO_RULE
        return known

    def leave(self) -> None:
        """See `Permissions`."""

    def is_instance(self, name: str) -> bool | None:
        """See `Permissions`."""
        raise NotImplementedError

    def find(self, permission: Permission, resource: str) -> Permit | None:
        """What is said to somebody who wants to do something; None for nothing."""
        raise NotImplementedError


class PermissionDocument(Remembering):
    """What a user may do, as a document says.

    Args:
        logon: what is said to those who log on as clients; None for nothing.
        replication: what is said to other instances; None for nothing.
        topics: the rules for topics.
        paths: the rules for paths of the admin interface.
        replicated: the topics that may be replicated here.
        instances: the names of the instances that log on as the user; None if nothing says which.
        user_name: as whom the user counts; None for the name that was given.
    """

    def __init__(
        self,
        *,
        logon: Permit | None,
        replication: Permit | None,
        topics: Sequence[Rule],
        paths: Sequence[Rule],
        replicated: Sequence[Rule],
        instances: Sequence[Rule] | None = None,
        user_name: str | None = None,
    ) -> None:
        super().__init__()
        self.user_name: Final = user_name
        self._logon = logon
        self._replication = replication
        self._topics = topics
        self._paths = paths
        self._replicated = replicated
        self._instances = instances

    def is_instance(self, name: str) -> bool | None:
        """See `Permissions`."""
        if self._instances is None:
            return None
        permit = _first(self._instances, name, lambda one: one.read)
        return permit is not None and permit.allowed

    def find(self, permission: Permission, resource: str) -> Permit | None:
        """See `Remembering`."""
        match permission:
            case Permission.LOGON:
                return self._logon
            case Permission.REPLICATION_LOGON:
                return self._replication
            case Permission.REPLICATE_TOPIC:
                return _first(self._replicated, resource, lambda one: one.read)
            case Permission.READ_TOPIC:
                return _first(self._topics, resource, lambda one: one.read)
            case Permission.WRITE_TOPIC:
                return _first(self._topics, resource, lambda one: one.write)
            case Permission.READ_ADMIN:
                return _first(self._paths, resource, lambda one: _whole(one.read))


def _first(rules: Iterable[Rule], resource: str, says: Callable[[Rule], Permit]) -> Permit | None:
    """What the first rule says that is about a resource; None if none is.

    Where it cannot be told of a rule, those behind it do not count: it may be there to refuse.
    """
    for rule in rules:
        is_about = rule.topics.decide_alone(resource)
        if is_about is None:
            return undecided(rule.topics.text)
        if is_about:
            return says(rule)
    return None


def _whole(permit: Permit) -> Permit:
    """A permit for the admin interface: what is shown there has no fields, so it has no limits."""
    if not permit.is_limited:
        return permit
    return Permit(False, rule=f"{permit.rule}, and pages have no fields that could be limited")


def make_document(
    content: dict[str, Any], functions: Functions, say: Callable[[Place], str] = name_place
) -> PermissionDocument:
    """Read a document that has been parsed.

    Args:
        content: the document.
        functions: what its filters may call.
        say: how a place of it is called in what is said to users.

    Raises:
        DocumentError: it cannot be used.
    """
    reading = _Reading(functions, say)
    _refuse_unknown((), content, KNOWN_FIELDS)
    user_name = content.get("user_name")
    if user_name is not None and not isinstance(user_name, str):
        raise DocumentError("expected a text", ("user_name",))
    return PermissionDocument(
        logon=reading.flag(content, "logon"),
        replication=reading.flag(content, "replication-logon"),
        topics=reading.rules(content, "topic"),
        paths=reading.rules(content, "admin"),
        replicated=reading.names(content, "replicated-topics"),
        instances=reading.names(content, "instances") if "instances" in content else None,
        user_name=user_name,
    )


def _refuse_unknown(place: Place, content: dict[str, Any], known: frozenset[str]) -> None:
    for name in content:
        if name not in known:
            expected = ", ".join(sorted(known))
            raise DocumentError(f"{name!r} is not known: expected one of {expected}", place)


def _list(content: dict[str, Any], name: str) -> list[Any]:
    value = content.get(name, [])
    if not isinstance(value, list):
        raise DocumentError("expected a list", (name,))
    if len(value) > MOST_ENTRIES:
        raise DocumentError(f"it has {len(value)} entries, and may have {MOST_ENTRIES}", (name,))
    return value


def _selector(place: Place, name: object) -> TopicSelector:
    if not isinstance(name, str):
        raise DocumentError("expected a name or a regular expression", place)
    try:
        return select_topics(name, with_audit=True)
    except TopicError as error:
        raise DocumentError(str(error), place) from None


@dataclass(frozen=True, slots=True)
class _Reading:
    """Reads the parts of a document.

    Attributes:
        functions: what its filters may call.
        say: how a place of it is called.
    """

    functions: Functions
    say: Callable[[Place], str]

    def flag(self, content: dict[str, Any], name: str) -> Permit | None:
        if name not in content:
            return None
        value = content[name]
        if not isinstance(value, bool):
            raise DocumentError(f"expected true or false, not {value!r:.100}", (name,))
        return Permit(value, rule=f"{self.say((name,))} is {_word(value)}")

    def names(self, content: dict[str, Any], name: str) -> list[Rule]:
        return [
            Rule(
                _selector((name, number), entry),
                Permit(True, rule=f"{self.say((name, number))} is {entry}"),
                NO_RULE,
            )
            for number, entry in enumerate(_list(content, name))
        ]

    def rules(self, content: dict[str, Any], name: str) -> list[Rule]:
        return [
            self._rule((name, number), entry) for number, entry in enumerate(_list(content, name))
        ]

    def _rule(self, place: Place, entry: object) -> Rule:
        if not isinstance(entry, dict):
            raise DocumentError("expected an object with topic, read and write", place)
        _refuse_unknown(place, entry, KNOWN_OF_RULE)
        if "topic" not in entry:
            raise DocumentError("topic is missing", place)
        topics = _selector((*place, "topic"), entry["topic"])
        read = self._permit(place, "read", entry)
        write = self._permit(place, "write", entry)
        if entry.get("select") is not None:
            read = _selected((*place, "select"), read, entry["select"])
        return Rule(topics, read, write)

    def _permit(self, entry_place: Place, name: str, entry: dict[str, Any]) -> Permit:
        place = (*entry_place, name)
        if name not in entry:
            return Permit(False, rule=f"{self.say(entry_place)} has no {name}")
        value = entry[name]
        if isinstance(value, bool):
            return Permit(value, rule=f"{self.say(place)} is {_word(value)}")
        if not isinstance(value, str):
            raise DocumentError("expected true, false or a filter", place)
        try:
            found = parse(value, Kind.FILTER, self.functions)
        except ExpressionError as error:
            raise DocumentError(str(error), place) from None
        rule = f"{self.say(place)} is {value}"
        return Permit(True, filter=found, filter_text=value, rule=rule)


def _word(value: bool) -> str:
    return str(value).lower()


def _selected(place: Place, permit: Permit, value: object) -> Permit:
    if not isinstance(value, str):
        raise DocumentError("expected a list of fields, as -/,+/id", place)
    try:
        found = parse_selection(value)
    except SelectionError as error:
        raise DocumentError(str(error), place) from None
    return replace(permit, select=found, select_text=value)
