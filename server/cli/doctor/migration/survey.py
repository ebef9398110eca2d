"""Finds features, modules, elements without effect and topics with records in a configuration."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from config_schema import schema
from config_schema.catalogue import ModuleKind
from config_schema.document import ConfigNode
from config_schema.standard_modules import LIBRARIES_OF_AMPS
from server.app.wiring.catalogue import ProgramCatalogue
from server.cli.doctor.migration.features import Feature, features_of

SAME: Final = "same"
DIFFERS: Final = "differs"
ABSENT: Final = "not there"

_ACTION: Final = "Actions/Action/"
_STEPS: Final = (ModuleKind.ON, ModuleKind.IF, ModuleKind.DO)
_USES: Final = {
    "UserDefinedFunctions/Function": "functions",
    "MessageTypes/MessageType": "message types",
    "Transports/Transport/TransportFilter": "transport filters",
    "SOW/Topic/KeyGenerator": "keys of records",
    "Replication/Destination/Transport/Authenticator": "logging on to other instances",
    "Authenticator": "logging on to other instances",
}
"""Elements that refer to a module, except for authentication, entitlement and actions."""

_IN_PYTHON: Final = {
    "functions": "docs/expressions.md",
    "message types": "docs/message_types.md#custom-types",
    "keys of records": "docs/sow.md#keys-of-your-own",
    "transport filters": "docs/transports.md#transport-filters",
    "authentication": "docs/security.md#authentication",
    "entitlement": "docs/security.md#entitlement",
}
"""Purposes that a library in Python can serve, and the page that describes each."""

_SECTIONS: Final = {
    "libamps_http_entitlement.so": "Permissions from a web service",
    "libamps_id_chaining_key_generator.so": "The State of the World",
    "libamps_oauth_authentication.so": "Links between instances",
    "libamps_multi_authenticator.so": "Links between instances",
    "libamps_multi_authentication.so": "Actions",
    "libamps_transport_filter_correlation_id_timestamper.so": "Transports",
    "libamps_udf_experimental.so": "The check of a configuration",
}
"""Libraries of AMPS, each with the section that describes how this server's one differs."""


@dataclass(slots=True)
class FeatureUse:
    """A feature in use.

    Attributes:
        feature: the feature.
        state: SAME, DIFFERS or ABSENT.
        count: number of its elements.
        first_location: location of the first of them.
    """

    feature: Feature
    state: str
    count: int
    first_location: str


@dataclass(slots=True)
class MigrationModule:
    """A loaded module, or a module of an action, which need not be loaded.

    Attributes:
        name: its name in the configuration.
        library: its library; empty for actions.
        used_for: its purposes, in words.
        state: SAME, DIFFERS or ABSENT.
        advice: how to replace it, or where it is described.
        where: its location.
    """

    name: str
    library: str
    used_for: tuple[str, ...]
    state: str
    advice: str
    where: str


@dataclass(frozen=True, slots=True)
class MigrationTopic:
    """A topic whose records are to be carried over.

    Attributes:
        name: name of the topic.
        message_type: message type of the topic.
        has_keys: True if the server makes the keys, so that publishing the records is enough.
        pattern: matches the names of the topics that it stands for; empty for itself.
    """

    name: str
    message_type: str
    has_keys: bool
    pattern: str


@dataclass(slots=True)
class FeatureSurvey:
    """The features in use in a configuration.

    Attributes:
        name: name of the instance.
        uses: the features, in the order of the configuration.
        ignored: elements that have no effect here, each with its location and the reason.
        modules: loaded modules, and the actions' modules.
        records: the topics with records of their own.
        port: of the first transport that spark could connect to; empty if there is none.
        is_encrypted: True if that transport has TLS.
    """

    name: str = ""
    uses: dict[str, FeatureUse] = field(default_factory=dict)
    ignored: list[tuple[str, str, str]] = field(default_factory=list)
    modules: list[MigrationModule] = field(default_factory=list)
    records: list[MigrationTopic] = field(default_factory=list)
    port: str = ""
    is_encrypted: bool = False

    def has(self, *features: str) -> bool:
        """Return True if one of the features is used."""
        return any(name in self.uses for name in features)


def survey(root: ConfigNode) -> FeatureSurvey:
    """Find the features that a configuration uses.

    Args:
        root: the configuration in canonical names, with mistakes or without.
    """
    result = FeatureSurvey(name=root.value("Name", "") or "")
    used_for: dict[str, list[str]] = {}
    for path, node in _walk(root, ""):
        _record_feature(path, node, result)
        purpose = _purpose(path)
        module = node.value("Module")
        if purpose and module:
            used_for.setdefault(module, []).append(purpose)
    for module_node in (one for section in root.all("Modules") for one in section.all("Module")):
        result.modules.append(_loaded(module_node, used_for))
    result.modules += _actions(root)
    result.records = [*_records(root)]
    _find_port(root, result)
    return result


def _walk(node: ConfigNode, path: str) -> Iterator[tuple[str, ConfigNode]]:
    for child in node.children:
        child_path = f"{path}/{child.tag}" if path else child.tag
        yield child_path, child
        yield from _walk(child, child_path)


def _record_feature(path: str, node: ConfigNode, result: FeatureSurvey) -> None:
    where, full = str(node.location), f"{schema.ROOT}/{path}"
    reason = schema.effect(full)
    if reason is not None:
        result.ignored.append((where, path, reason))
    if path.partition("/")[0] == path and node.children:
        return  # a section: only its content is a feature
    for feature in features_of(path, node.text):
        state = DIFFERS if feature.section else SAME
        state = state if feature.is_supported else ABSENT
        use = result.uses.setdefault(feature.name, FeatureUse(feature, state, 0, where))
        use.count += 1


def _purpose(path: str) -> str:
    for use, purpose in _USES.items():
        if path == use:
            return purpose
    name = path.rpartition("/")[2]
    return name.lower() if name in ("Authentication", "Entitlement") else ""


def _loaded(node: ConfigNode, used_for: dict[str, list[str]]) -> MigrationModule:
    name, library = node.value("Name", "") or "", node.value("Library", "") or ""
    purposes = tuple(dict.fromkeys(used_for.get(name, ())))
    base = posixpath.basename(library).removesuffix(".so") + ".so"
    where = str(node.location)
    if base in ProgramCatalogue().libraries:
        section = _SECTIONS.get(base, "")
        state = DIFFERS if section else SAME
        advice = "this server has a module of that name"
        if section:
            advice += f"; differences: docs/compatibility.md, {section}"
        return MigrationModule(name, library, purposes, state, advice, where)
    if base in LIBRARIES_OF_AMPS:
        advice = "a library of AMPS that has no counterpart here"
        return MigrationModule(name, library, purposes, ABSENT, advice, where)
    if library.endswith(".py") or not library.endswith(".so"):
        return MigrationModule(name, library, purposes, SAME, "a library in Python", where)
    return MigrationModule(name, library, purposes, ABSENT, _replacement(purposes), where)


def _replacement(purposes: tuple[str, ...]) -> str:
    """Return the advice on a compiled library, by its purposes."""
    description = "a compiled library of one's own, which cannot be loaded"
    if not purposes:
        return f"{description}; nothing uses it: leave it out"
    pages = [_IN_PYTHON[purpose] for purpose in purposes if purpose in _IN_PYTHON]
    others = [purpose for purpose in purposes if purpose not in _IN_PYTHON]
    ways = []
    if pages:
        ways.append(f"write it anew in Python ({', '.join(pages)})")
    if others:
        ways.append(f"there is no way to do this in Python: {', '.join(others)}")
    return f"{description}: {'; '.join(ways)}"


def _actions(root: ConfigNode) -> Iterator[MigrationModule]:
    """Yield the modules of actions, each once."""
    catalogue = ProgramCatalogue()
    kinds = {kind.value: catalogue.modules(kind) for kind in _STEPS}
    seen = set[tuple[str, str]]()
    for path, node in _walk(root, ""):
        step = path.removeprefix(_ACTION)
        name = node.value("Module")
        if step == path or step not in kinds or not name or (step, name) in seen:
            continue
        seen.add((step, name))
        is_known = name in kinds[step]
        advice = "" if is_known else "there is no such module here"
        state = DIFFERS if is_known else ABSENT
        yield MigrationModule(name, "", (f"actions ({step})",), state, advice, str(node.location))


def _records(root: ConfigNode) -> Iterator[MigrationTopic]:
    for section in root.all("SOW"):
        for topic in section.all("Topic"):
            yield MigrationTopic(
                topic.value("Name", "") or "",
                topic.value("MessageType", "") or "",
                bool(topic.all("Key")) or topic.find("KeyGenerator") is not None,
                topic.value("Pattern", "") or "",
            )


def _find_port(root: ConfigNode, result: FeatureSurvey) -> None:
    """Find the first transport that spark could connect to."""
    for section in root.all("Transports"):
        for transport in section.all("Transport"):
            kind = (transport.value("Type", "") or "").lower()
            protocol = (transport.value("Protocol", "") or "amps").lower()
            address = transport.value("InetAddr")
            if address and kind in ("tcp", "tcps") and protocol in ("amps", "json"):
                result.port = address.rpartition(":")[2]
                result.is_encrypted = kind == "tcps" or transport.find("Certificate") is not None
                return
