"""An instance as entries and settings.

The description is traversed attribute by attribute, in parallel with the tree that it was compiled
from. The type of an attribute's value decides: a part that may occur several times becomes an
entry, a block such as TLS belongs to the entry around it, everything else is a setting. So a new
attribute is compared and shown as soon as it exists, and `tags.py` has to list it only if its
element has another name.
"""

import posixpath
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import zip_longest
from typing import Any, Final

from config_schema import schema
from config_schema.catalogue import Catalogue, ModuleKind, OptionRule
from config_schema.document import ConfigNode
from config_schema.problems import Location
from config_schema.settings.options import default_of, meaning, rule_of, text_of
from config_schema.settings.shown import format_default_value, format_setting_value
from config_schema.settings.tags import tag_of
from config_schema.spec import (
    ActionSpec,
    AdminSpec,
    ConflatedTopicSpec,
    DestinationSpec,
    ExternalsSpec,
    FunctionSpec,
    HistorySpec,
    InetAddr,
    InstanceSpec,
    JoinSpec,
    JournaledTopicSpec,
    LogTargetSpec,
    MessageTypeSpec,
    ModuleSpec,
    ModuleUse,
    Options,
    OutgoingTransportSpec,
    ProtocolSpec,
    QueueSpec,
    ReplicatedTopicSpec,
    SlowClientLimits,
    SqlSpec,
    TlsSpec,
    TopicRef,
    TopicSpec,
    TransactionLogSpec,
    TransportSpec,
    TuningSpec,
    ViewSpec,
)


@dataclass(frozen=True, slots=True)
class SettingValue:
    """One value of a setting: its meaning, its written form, and its location.

    `location` is None for a default.
    """

    value: Hashable
    text: str
    location: Location | None


@dataclass(frozen=True, slots=True)
class Setting:
    """One element of an entry, and its effective value.

    Attributes:
        key: its path within the entry.
        path: its canonical path.
        items: its values; one, unless the element may occur several times.
        is_written: true if the configuration has the element.
    """

    key: str
    path: str
    items: tuple[SettingValue, ...]
    is_written: bool

    @property
    def value(self) -> Hashable:
        """The effective value; ordered only where the order has a meaning."""
        values = tuple(item.value for item in self.items)
        return frozenset(values) if self.path.rpartition("/")[2] in _UNORDERED else values

    @property
    def text(self) -> str:
        """The written form."""
        return ", ".join(item.text for item in self.items) or format_default_value(self.path, None)


@dataclass(frozen=True, slots=True)
class SettingsEntry:
    """A part of a configuration that may occur several times, or the instance itself.

    Attributes:
        path: the canonical path of its element.
        identities: keys that distinguish it from its siblings, the most reliable first.
        name: its name among them for display; "" if there is only one.
        location: where it was written.
        part: its part of the description.
        settings: its own settings, by key.
        entries: the parts inside it, in file order.
    """

    path: str
    identities: tuple[Hashable, ...]
    name: str
    location: Location
    part: object
    settings: Mapping[str, Setting]
    entries: tuple["SettingsEntry", ...]

    @property
    def fingerprint(self) -> Hashable:
        """A hash key that is equal for entries with the same meaning."""
        own = frozenset((key, setting.value) for key, setting in self.settings.items())
        return self.path, own, tuple(entry.fingerprint for entry in self.entries)


_UNORDERED: Final = frozenset(
    {
        "AccessControlAllowOrigin",
        "ExcludeErrors",
        "ExcludeValidation",
        "HashIndex",
        "IncludeErrors",
        "Index",
        "Levels",
        "Options",  # of syslog
        "PassThrough",
        "SecureSocketProtocols",
    }
)
"""Elements with values that may be given in any order."""

_PATHS: Final = ("FileName", "JournalArchiveDirectory", "JournalDirectory", "MessageDiskPath")
"""Elements with a path that can be written in several ways: `./log` is `log`."""

_USED_AS: Final[Mapping[str, ModuleKind]] = {
    "authentication": ModuleKind.AUTHENTICATION,
    "entitlement": ModuleKind.ENTITLEMENT,
    "key_generator": ModuleKind.KEY_GENERATOR,
    "authenticator": ModuleKind.AUTHENTICATOR,
}
_USES_BY_TAG: Final = {
    "On": ModuleKind.ON,
    "Do": ModuleKind.DO,
    "If": ModuleKind.IF,
    "TransportFilter": ModuleKind.TRANSPORT_FILTER,
}
_TYPED: Final = (
    TopicSpec,
    ViewSpec,
    ConflatedTopicSpec,
    QueueSpec,
    JournaledTopicSpec,
    ReplicatedTopicSpec,
)
_NAMED: Final = (
    ModuleSpec,
    MessageTypeSpec,
    FunctionSpec,
    ProtocolSpec,
    TransportSpec,
    DestinationSpec,
    OutgoingTransportSpec,
)
_ALONE: Final = (AdminSpec, HistorySpec, TransactionLogSpec)
_SEVERAL: Final = (*_TYPED, *_NAMED, LogTargetSpec, ActionSpec, ModuleUse)


def entries_of(spec: InstanceSpec, root: ConfigNode, catalogue: Catalogue) -> SettingsEntry:
    """Combine the meaning of a configuration with the locations of its elements.

    Args:
        spec: the description of the instance.
        root: the tree in canonical names that it was compiled from.
        catalogue: the modules of the program, with the rules of their options.

    Returns:
        The instance's entry, which contains all others.
    """
    return _SpecWalker(spec, root, catalogue).build_entry(spec, root, schema.ROOT)


@dataclass(slots=True)
class _Contents:
    """The settings and entries found so far for one entry."""

    settings: dict[str, Setting] = field(default_factory=dict)
    entries: list[SettingsEntry] = field(default_factory=list)

    def add_setting(
        self, key: str, path: str, items: Iterable[SettingValue], *, is_written: bool = True
    ) -> None:
        self.settings[key] = Setting(key, path, tuple(items), is_written)


@dataclass(frozen=True, slots=True)
class _EntryElement:
    """The element from which a part is read, and its path within the entry."""

    node: ConfigNode
    path: str
    prefix: str = ""

    def child_element(self, tag: str) -> "_EntryElement":
        """Return the place of the element at a path below, which may be absent."""
        node = self.node
        for step in tag.split("/") if tag else ():
            node = node.find(step) or ConfigNode(step, "", {}, (), node.location)
        return _EntryElement(node, _joined(self.path, tag), f"{_joined(self.prefix, tag)}")

    def setting_key(self, tag: str) -> str:
        """Return the key of an element within the entry."""
        return _joined(self.prefix, tag)


class _SpecWalker:
    """Traverses the description of one instance."""

    def __init__(self, spec: InstanceSpec, root: ConfigNode, catalogue: Catalogue) -> None:
        self._root = root
        self._modules = spec.modules
        self._catalogue = catalogue

    def build_entry(self, part: Any, node: ConfigNode, path: str) -> SettingsEntry:
        """Build the entry of a part."""
        contents, element = _Contents(), _EntryElement(node, path)
        if isinstance(part, ActionSpec):
            self._add_action(part, element, contents)
        elif isinstance(part, ModuleUse):
            self._add_module_use(part, _USES_BY_TAG[node.tag], element, contents)
        else:
            self._add_part(part, element, contents)
        entries = tuple(contents.entries)
        entry = SettingsEntry(
            path, (), _name(part), node.location, part, contents.settings, entries
        )
        return replace(entry, identities=_identities(part, entry))

    def _add_part(self, part: Any, element: _EntryElement, contents: _Contents) -> None:
        """Read every attribute of a part."""
        for attribute in fields(part):
            tag = tag_of(type(part), attribute.name)
            value = getattr(part, attribute.name)
            if attribute.name == "location" or not tag or _says_nothing(value, element, tag):
                continue
            if isinstance(value, ModuleUse):
                self._add_module_use(
                    value,
                    _USED_AS[attribute.name],
                    self._module_use_element(element, tag),
                    contents,
                )
            elif isinstance(value, SlowClientLimits | TlsSpec):
                self._add_part(value, element, contents)
            elif isinstance(value, TuningSpec | SqlSpec | ExternalsSpec):
                self._add_part(value, element.child_element(tag), contents)
            elif isinstance(value, _ALONE):
                inner = element.child_element(tag)
                contents.entries.append(self.build_entry(value, inner.node, inner.path))
            elif isinstance(value, Options):
                self._add_own_options(part, value, element, contents)
            elif isinstance(value, tuple) and _several(value):
                contents.entries += self._build_entries(value, element, tag)
            else:
                _add_setting(part, value, element, tag, contents)

    def _module_use_element(self, element: _EntryElement, tag: str) -> _EntryElement:
        """Find the element that names a module to use: at this place, or for the whole instance."""
        inner = element.child_element(tag)
        return (
            inner
            if element.node.find(tag)
            else replace(inner, node=self._root.find(tag) or inner.node)
        )

    def _build_entries(
        self, parts: Sequence[Any], element: _EntryElement, tag: str
    ) -> Iterator[SettingsEntry]:
        """Build the entries of a repeatable part, each with the element it was made from."""
        section, _, _ = tag.rpartition("/") if tag != "SOW" else (tag, "", "")
        inner = element.child_element(section)
        nodes_by_location: dict[Location, list[ConfigNode]] = {}
        for child in reversed(inner.node.children):
            if tag == "SOW" or child.tag == tag.rpartition("/")[2]:
                nodes_by_location.setdefault(child.location, []).append(child)
        for part in parts:
            node = nodes_by_location[part.location].pop()
            yield self.build_entry(part, node, f"{inner.path}/{node.tag}")

    def _add_action(self, part: ActionSpec, element: _EntryElement, contents: _Contents) -> None:
        """Read the triggers and steps of an action, in the order of the file."""
        triggers, steps = iter(part.triggers), iter(part.steps)
        for child in element.node.children:
            if child.tag in _USES_BY_TAG:
                use = next(triggers) if child.tag == "On" else next(steps).use
                contents.entries.append(self.build_entry(use, child, f"{element.path}/{child.tag}"))

    def _add_module_use(
        self, use: ModuleUse, kind: ModuleKind, element: _EntryElement, contents: _Contents
    ) -> None:
        """Read the use of a module: its name, and its options with their defaults."""
        _add_setting(use, use.module, element, "Module", contents)
        rule = rule_of(use.module, kind, self._catalogue, self._modules)
        rules = {option.name: option for option in rule.options} if rule else {}
        loaded = next(
            (module.options for module in self._modules if module.name == use.module), Options()
        )
        inner = element.child_element("Options")
        _add_options(use.options, rules, inner, contents)
        for name, option in rules.items():
            absent = not use.options.all(name) and not loaded.all(name)
            if absent and option.default is not None:
                item = SettingValue(default_of(option), option.default, None)
                contents.add_setting(
                    inner.setting_key(name), f"{inner.path}/{name}", [item], is_written=False
                )

    def _add_own_options(
        self, part: Any, options: Options, element: _EntryElement, contents: _Contents
    ) -> None:
        """Read the options of a message type, or of a library that is loaded."""
        rules: Mapping[str, OptionRule] = {}
        if isinstance(part, ModuleSpec):
            library = self._catalogue.libraries.get(part.library_name)
            rules = {rule.name: rule for rule in library.options} if library else {}
        own_options = [option for option in options if element.node.find(option.name)]
        inner_options = [option for option in options if not element.node.find(option.name)]
        _add_options(Options(tuple(own_options)), rules, element, contents)
        _add_options(
            Options(tuple(inner_options)), rules, element.child_element("Options"), contents
        )


def _joined(path: str, tag: str) -> str:
    return "/".join(filter(None, (path, tag)))


def _says_nothing(value: object, element: _EntryElement, tag: str) -> bool:
    """Return true if an element has no effect, or if a part or block is absent."""
    path = f"{element.path}/{tag}"
    if schema.effect(path) is not None:
        return True
    is_block = path not in schema.elements() or (schema.children(path) and tag != "HashIndex")
    return value in (None, ()) and bool(is_block)


def _several(parts: tuple[object, ...]) -> bool:
    return any(isinstance(part, _SEVERAL) for part in parts[:1])


def _add_options(
    options: Options, rules: Mapping[str, OptionRule], element: _EntryElement, contents: _Contents
) -> None:
    for name in dict.fromkeys(option.name for option in options):
        items = [
            SettingValue(meaning(rules.get(name), option), text_of(option), option.location)
            for option in options
            if option.name == name
        ]
        contents.add_setting(element.setting_key(name), f"{element.path}/{name}", items)


def _add_setting(
    part: object, value: Any, element: _EntryElement, tag: str, contents: _Contents
) -> None:
    path, nodes = f"{element.path}/{tag}", _nodes(part, element.node, tag)
    if isinstance(part, ViewSpec) and part.joins and tag == "UnderlyingTopic":
        return  # the joins determine it
    if isinstance(value, tuple | frozenset):
        values = list(value) if isinstance(value, tuple) else sorted(value)
        texts = [node.text for node in nodes] if len(nodes) == len(values) else []
        item_texts = [
            text or format_setting_value(path, item_value)
            for text, item_value in zip_longest(texts, values)
        ]
        locations = [node.location for node in nodes]
    else:
        values = [value]
        item_texts = [nodes[0].text if nodes else format_default_value(path, value)]
        locations = [node.location for node in nodes]
    if len(locations) != len(values):
        locations = locations[:1] * len(values)
    items = (
        SettingValue(_meaning(part, tag, item_value), text, location)
        for item_value, text, location in zip_longest(values, item_texts, locations)
    )
    contents.add_setting(element.setting_key(tag), path, items, is_written=bool(nodes))


def _nodes(part: object, node: ConfigNode, tag: str) -> list[ConfigNode]:
    """Find the elements that a setting was written as; an empty element counts as absent."""
    nodes = [node]
    for step in tag.split("/"):
        nodes = [child for element in nodes for child in element.all(step)]
    if not nodes and isinstance(part, DestinationSpec) and tag == "Compression":
        return [
            inner for element in node.all("Transport") for inner in _nodes(element, element, tag)
        ][:1]
    return [element for element in nodes if element.text or element.children]


def _meaning(part: object, tag: str, value: Any) -> Hashable:
    """Return the meaning of a value, independent of its written form."""
    match value:
        case InetAddr() | TopicRef():
            return str(value)
        case JoinSpec(left, right):
            return left, right
    if isinstance(part, TopicSpec) and tag == "Expiration" and value is None:
        return "enabled" if part.expiration_enabled else "disabled"
    if isinstance(part, DestinationSpec) and tag == "Group":
        return value, part.known_by
    if isinstance(value, str) and tag in _PATHS:
        return posixpath.normpath(value)
    meaning: Hashable = value
    return meaning


def _identities(part: object, entry: SettingsEntry) -> tuple[Hashable, ...]:
    """Return the keys that distinguish an entry from its siblings, the most reliable first."""
    if isinstance(part, _TYPED):
        return ((part.message_type, part.name),)
    if isinstance(part, FunctionSpec):
        return (part.name.upper(),)
    if isinstance(part, OutgoingTransportSpec):
        return entry.fingerprint, part.name
    if isinstance(part, _NAMED):
        return (part.name,)
    if isinstance(part, LogTargetSpec):
        return (part.protocol, part.file_name), part.protocol
    if isinstance(part, ModuleUse):
        return entry.fingerprint, (entry.path, part.module)
    if isinstance(part, ActionSpec):
        triggers = tuple(use.module for use in part.triggers)
        steps = tuple(step.use.module for step in part.steps)
        exactly = tuple(
            trigger.fingerprint for trigger in entry.entries if trigger.path.endswith("/On")
        )
        return entry.fingerprint, (exactly, steps), (triggers, steps), (exactly,), triggers, steps
    return (type(part).__name__,)


def _name(part: object) -> str:
    """Return the name of an entry among its siblings, for display."""
    if isinstance(part, _TYPED):
        return f"{part.name} ({part.message_type})"
    if isinstance(part, _NAMED):
        return part.name
    if isinstance(part, LogTargetSpec):
        return part.file_name or part.protocol
    if isinstance(part, ModuleUse):
        return part.module
    if isinstance(part, ActionSpec):
        triggers = " or ".join(_ending(use.module) for use in part.triggers)
        steps = ", ".join(f"{step.kind} {_ending(step.use.module)}" for step in part.steps)
        return f"on {triggers}: {steps}"
    return ""


def _ending(module: str) -> str:
    """Return the part of an action module's name that distinguishes it from the others."""
    return re.sub(r"^amps-action-(on|do|if)-", "", module)
