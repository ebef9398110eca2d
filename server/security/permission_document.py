"""Permission documents: the permissions of a user, in JSON.

    {"logon": true, "replication-logon": false,
     "topic": [{"topic": "^orders", "read": "/desk = 7", "write": false, "select": "-/,+/id"}, ...],
     "admin": [{"topic": "^/amps", "read": true, "write": false}, ...],
     "replicated-topics": ["^orders"], "instances": ["^hub"], "user_name": "other name"}

In a list, the first entry that matches the topic applies; without one, access is refused. A name
with characters of regular expressions is a regular expression, and matches anywhere. Unknown fields
and filters that cannot be parsed are refused: half a document would be a wrong one.

Source: AMPS User Guide, RESTful Authentication and Entitlements, Permissions Document Format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from server.expressions import ContextKind, ExpressionError, parse
from server.expressions.topic_names import TopicError, TopicSelector, select_topics
from server.message_types.select_list import SelectionError, parse_selection
from server.security.permissions import Permission, Permit, undecided

if TYPE_CHECKING:
    from server.expressions.functions.registry import Functions

_MAX_REMEMBERED: Final = 10_000
"""Limit of the cache of decisions on topics, which saves a search of the list for each command."""

MAX_PERMISSION_RULES: Final = 5_000
"""Limit of the entries of a list: each is tested for every topic that the user accesses, and its
filters are parsed."""

KNOWN_FIELDS: Final = frozenset(
    {"logon", "replication-logon", "topic", "admin", "replicated-topics", "instances", "user_name"}
)
RULE_FIELDS: Final = frozenset({"topic", "read", "write", "select"})


DocumentPath: TypeAlias = tuple[str | int, ...]
"""A position in a document: names, and the numbers of entries from 0 on."""


def format_path(path: DocumentPath) -> str:
    """Return a position as text: `topic, entry 1: read`."""
    words = ""
    for step in path:
        if isinstance(step, int):
            words += f", entry {step + 1}"
        else:
            words += f": {step}" if words else step
    return words


class DocumentError(ValueError):
    """A document cannot be used. The text gives the problem and its position.

    Attributes:
        path: the position.
        problem: the problem.
    """

    def __init__(self, problem: str, path: DocumentPath = ()) -> None:
        super().__init__(f"{format_path(path)}: {problem}" if path else problem)
        self.path: Final = path
        self.problem: Final = problem


@dataclass(frozen=True, slots=True)
class PermissionRule:
    """One entry of a list.

    Attributes:
        topics: the topics that it applies to.
        read: the permit for reading.
        write: the permit for writing.
    """

    topics: TopicSelector
    read: Permit
    write: Permit


NO_RULE: Final = Permit(False, rule="no entry is about it")
"""The permit where no entry of a document applies."""


class PermitCache:
    """Caches the permit of each topic, since lists are long and commands frequent."""

    def __init__(self) -> None:
        self._permits: dict[tuple[Permission, str], Permit] = {}

    def get_permit(self, permission: Permission, resource: str) -> Permit:
        """See `Permissions`."""
        key = permission, resource
        cached = self._permits.get(key)
        if cached is None:
            if len(self._permits) >= _MAX_REMEMBERED:
                self._permits.clear()
            cached = self._permits[key] = self.evaluate(permission, resource) or NO_RULE
        return cached

    def release(self) -> None:
        """See `Permissions`."""

    def allows_instance(self, name: str) -> bool | None:
        """See `Permissions`."""
        raise NotImplementedError

    def evaluate(self, permission: Permission, resource: str) -> Permit | None:
        """Return the permit for an operation, uncached; None if no rule applies."""
        raise NotImplementedError


class PermissionDocument(PermitCache):
    """The permissions of a user, from a document.

    Args:
        logon: the permit for logons of clients; None if the document has none.
        replication: the permit for logons of other instances; None if the document has none.
        topics: the rules for topics.
        paths: the rules for paths of the admin interface.
        replicated: the topics that may be replicated here.
        instances: the names of the instances that log on as the user; None if not specified.
        user_name: the user name that applies instead of the given one; None for the given one.
    """

    def __init__(
        self,
        *,
        logon: Permit | None,
        replication: Permit | None,
        topics: Sequence[PermissionRule],
        paths: Sequence[PermissionRule],
        replicated: Sequence[PermissionRule],
        instances: Sequence[PermissionRule] | None = None,
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

    def allows_instance(self, name: str) -> bool | None:
        """See `Permissions`."""
        if self._instances is None:
            return None
        permit = _first(self._instances, name, lambda entry: entry.read)
        return permit is not None and permit.is_allowed

    def evaluate(self, permission: Permission, resource: str) -> Permit | None:
        """See `PermitCache`."""
        match permission:
            case Permission.LOGON:
                return self._logon
            case Permission.REPLICATION_LOGON:
                return self._replication
            case Permission.REPLICATE_TOPIC:
                return _first(self._replicated, resource, lambda entry: entry.read)
            case Permission.READ_TOPIC:
                return _first(self._topics, resource, lambda entry: entry.read)
            case Permission.WRITE_TOPIC:
                return _first(self._topics, resource, lambda entry: entry.write)
            case Permission.READ_ADMIN:
                return _first(self._paths, resource, lambda entry: _unlimited(entry.read))


def _first(
    rules: Iterable[PermissionRule], resource: str, says: Callable[[PermissionRule], Permit]
) -> Permit | None:
    """Return the permit of the first rule that matches a resource; None if none does.

    Where a match cannot be decided, later rules do not apply: the undecided one may be a refusal.
    """
    for rule in rules:
        is_about = rule.topics.match_topic_alone(resource)
        if is_about is None:
            return undecided(rule.topics.text)
        if is_about:
            return says(rule)
    return None


def _unlimited(permit: Permit) -> Permit:
    """Return a permit for the admin interface; refuse a limited one, since pages have no fields."""
    if not permit.is_limited:
        return permit
    return Permit(False, rule=f"{permit.rule}, and pages have no fields that could be limited")


def make_document(
    content: dict[str, Any],
    functions: Functions,
    format_position: Callable[[DocumentPath], str] = format_path,
) -> PermissionDocument:
    """Make permissions from a document that has been parsed as JSON.

    Args:
        content: the document.
        functions: the functions that its filters may call.
        format_position: formats a position in the document for texts that users see.

    Raises:
        DocumentError: it cannot be used.
    """
    reading = _DocumentReader(functions, format_position)
    _refuse_unknown((), content, KNOWN_FIELDS)
    user_name = content.get("user_name")
    if user_name is not None and not isinstance(user_name, str):
        raise DocumentError("expected a text", ("user_name",))
    return PermissionDocument(
        logon=reading.read_flag(content, "logon"),
        replication=reading.read_flag(content, "replication-logon"),
        topics=reading.read_rules(content, "topic"),
        paths=reading.read_rules(content, "admin"),
        replicated=reading.read_names(content, "replicated-topics"),
        instances=reading.read_names(content, "instances") if "instances" in content else None,
        user_name=user_name,
    )


def _refuse_unknown(path: DocumentPath, content: dict[str, Any], known: frozenset[str]) -> None:
    for name in content:
        if name not in known:
            expected = ", ".join(sorted(known))
            raise DocumentError(f"{name!r} is not known: expected one of {expected}", path)


def _list(content: dict[str, Any], name: str) -> list[Any]:
    value = content.get(name, [])
    if not isinstance(value, list):
        raise DocumentError("expected a list", (name,))
    if len(value) > MAX_PERMISSION_RULES:
        raise DocumentError(
            f"it has {len(value)} entries, and may have {MAX_PERMISSION_RULES}", (name,)
        )
    return value


def _selector(path: DocumentPath, name: object) -> TopicSelector:
    if not isinstance(name, str):
        raise DocumentError("expected a name or a regular expression", path)
    try:
        return select_topics(name, with_audit=True)
    except TopicError as error:
        raise DocumentError(str(error), path) from None


@dataclass(frozen=True, slots=True)
class _DocumentReader:
    """Reads the parts of a document.

    Attributes:
        functions: the functions that its filters may call.
        format_position: formats a position in the document.
    """

    functions: Functions
    format_position: Callable[[DocumentPath], str]

    def read_flag(self, content: dict[str, Any], name: str) -> Permit | None:
        if name not in content:
            return None
        value = content[name]
        if not isinstance(value, bool):
            raise DocumentError(f"expected true or false, not {value!r:.100}", (name,))
        return Permit(value, rule=f"{self.format_position((name,))} is {_decision_text(value)}")

    def read_names(self, content: dict[str, Any], name: str) -> list[PermissionRule]:
        return [
            PermissionRule(
                _selector((name, number), entry),
                Permit(True, rule=f"{self.format_position((name, number))} is {entry}"),
                NO_RULE,
            )
            for number, entry in enumerate(_list(content, name))
        ]

    def read_rules(self, content: dict[str, Any], name: str) -> list[PermissionRule]:
        return [
            self._read_rule((name, number), entry)
            for number, entry in enumerate(_list(content, name))
        ]

    def _read_rule(self, path: DocumentPath, entry: object) -> PermissionRule:
        if not isinstance(entry, dict):
            raise DocumentError("expected an object with topic, read and write", path)
        _refuse_unknown(path, entry, RULE_FIELDS)
        if "topic" not in entry:
            raise DocumentError("topic is missing", path)
        topics = _selector((*path, "topic"), entry["topic"])
        read = self._read_permit(path, "read", entry)
        write = self._read_permit(path, "write", entry)
        if entry.get("select") is not None:
            read = _selected((*path, "select"), read, entry["select"])
        return PermissionRule(topics, read, write)

    def _read_permit(self, entry_path: DocumentPath, name: str, entry: dict[str, Any]) -> Permit:
        path = (*entry_path, name)
        if name not in entry:
            return Permit(False, rule=f"{self.format_position(entry_path)} has no {name}")
        value = entry[name]
        if isinstance(value, bool):
            return Permit(value, rule=f"{self.format_position(path)} is {_decision_text(value)}")
        if not isinstance(value, str):
            raise DocumentError("expected true, false or a filter", path)
        try:
            expression = parse(value, ContextKind.FILTER, self.functions)
        except ExpressionError as error:
            raise DocumentError(str(error), path) from None
        rule = f"{self.format_position(path)} is {value}"
        return Permit(True, filter=expression, filter_text=value, rule=rule)


def _decision_text(value: bool) -> str:
    return str(value).lower()


def _selected(path: DocumentPath, permit: Permit, value: object) -> Permit:
    if not isinstance(value, str):
        raise DocumentError("expected a list of fields, as -/,+/id", path)
    try:
        selection = parse_selection(value)
    except SelectionError as error:
        raise DocumentError(str(error), path) from None
    return replace(permit, select=selection, select_text=value)
