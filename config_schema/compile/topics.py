"""SOW topics.

Source: AMPS User Guide, Configuring Topics in a SOW.
"""

import posixpath
import re
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final, Literal, get_args

from config_schema.catalogue import ExpressionKind, ModuleKind
from config_schema.compile.modules import compile_use
from config_schema.compile.reader import (
    COUNT,
    INTERVAL,
    SIZE,
    CompileReport,
    ElementReader,
    did_you_mean,
)
from config_schema.compile.scope import Scope
from config_schema.regex import has_regex_characters
from config_schema.spec import HistorySpec, ModuleUse, SowSpec, TopicSpec
from config_schema.units import quoted

Durability = Literal["persistent", "transient"]

DURABILITIES: Final[tuple[Durability, ...]] = get_args(Durability)
_MOMENT: Final = re.compile(r"(\d{8}T\d{6})(?:\.(\d{1,9}))?Z?", re.ASCII)


def compile_topic(reader: ElementReader, scope: Scope) -> TopicSpec:
    """Compile one Topic of the SOW section."""
    name = reader.text("Name") or ""
    message_type = scope.message_type(reader)
    durability = reader.choice("Durability", DURABILITIES, "persistent")
    keys = reader.expressions("Key", ExpressionKind.PATH)
    generator = compile_use(reader.child("KeyGenerator"), ModuleKind.KEY_GENERATOR, scope)
    enabled, expiration = compile_expiration(reader)
    history = _history(reader)
    _check_identity(reader, keys, generator, message_type, scope)
    _check_history(reader, expires=enabled)
    _check_fields(reader, message_type, scope)
    return TopicSpec(
        name=name,
        message_type=message_type,
        keys=keys,
        key_domain=reader.text("KeyDomain") or name,
        key_generator=generator,
        file_name=_file_name(reader, durability, name, message_type),
        durability=durability,
        recovery_point=_recovery_point(reader),
        expiration_enabled=enabled,
        expiration=expiration,
        slab_size=reader.quantity("SlabSize", SIZE, "5MB", minimum="1B", maximum="1GB"),
        initial_slab_count=reader.quantity(
            "InitialSlabCount", COUNT, "1", minimum="1", maximum="1024"
        ),
        expected_key_count_hint=reader.quantity("ExpectedKeyCountHint", COUNT),
        hash_indexes=compile_hash_indexes(reader),
        indexes=reader.expressions("Index", ExpressionKind.PATH),
        history=history,
        preprocessing=_fields(reader, "Preprocessing", ExpressionKind.PREPROCESSING),
        enrichment=_fields(reader, "Enrichment", ExpressionKind.ENRICHMENT),
        pattern=reader.pattern("Pattern"),
        name_has_regex_characters=has_regex_characters(name),
        location=reader.location,
    )


def compile_hash_indexes(reader: ElementReader) -> tuple[tuple[str, ...], ...]:
    """Compile the HashIndex elements of a topic, a view or a conflated topic."""
    return tuple(
        index.expressions("Key", ExpressionKind.PATH) for index in reader.children("HashIndex")
    )


def compile_expiration(reader: ElementReader) -> tuple[bool, int | None]:
    """Return whether messages expire, and their default lifetime."""
    text = (reader.text("Expiration") or "disabled").lower()
    if text in ("enabled", "disabled"):
        return text == "enabled", None
    return True, reader.quantity("Expiration", INTERVAL)


def _recovery_point(reader: ElementReader) -> Literal["epoch", "now"] | int:
    """Compile the start of recovery; a time as nanoseconds since 1970."""
    text = reader.text("RecoveryPoint") or "epoch"
    match text.lower():
        case "epoch":
            return "epoch"
        case "now":
            return "now"
    parts = _MOMENT.fullmatch(text)
    with suppress(ValueError):
        if parts is not None:
            second = datetime.strptime(parts[1], "%Y%m%dT%H%M%S").replace(tzinfo=UTC)
            return int(second.timestamp()) * 10**9 + int((parts[2] or "").ljust(9, "0"))
    reader.error(
        f"{quoted(text)} is not a point of recovery: expected epoch, now, or a time such as "
        "20260131T093000Z",
        did_you_mean(text, ("epoch", "now")),
        tag="RecoveryPoint",
    )
    return "epoch"


def _history(reader: ElementReader) -> HistorySpec | None:
    history = reader.child("History")
    if history is None:
        return None
    history.required("Window")
    history.required("Granularity")
    window = history.quantity("Window", INTERVAL, "0s", minimum="1ns")
    granularity = history.quantity("Granularity", INTERVAL, "0s")
    if granularity > window:
        history.warning(
            "is longer than the Window: at most one past state is kept", tag="Granularity"
        )
    return HistorySpec(window, granularity, history.location)


def _check_history(reader: ElementReader, *, expires: bool) -> None:
    if not reader.has("History"):
        return
    if expires:
        reader.error(
            "cannot be combined with Expiration",
            "remove one of the two: a topic with History keeps records for its Window",
            tag="History",
        )
    if reader.has("Pattern"):
        reader.error(
            "cannot be combined with Pattern",
            "define the topics that need History one by one",
            tag="History",
        )


def _check_identity(
    reader: ElementReader,
    keys: tuple[str, ...],
    generator: ModuleUse | None,
    message_type: str,
    scope: Scope,
) -> None:
    if generator is not None:
        reader.warn_no_effect(
            ("Key",), "the KeyGenerator decides which record a message belongs to"
        )
    if reader.has("KeyDomain") and (generator is not None or not keys):
        reader.error("needs a Key: it is mixed into the SOW keys made from it", tag="KeyDomain")
    if keys and not scope.capabilities_of(message_type).fields:
        reader.error(
            f"cannot be read from messages of type {quoted(message_type)}, which has no fields",
            "remove Key, so that publishers send the SOW key with each message",
            tag="Key",
        )


def _check_fields(reader: ElementReader, message_type: str, scope: Scope) -> None:
    if scope.capabilities_of(message_type).enrichment:
        return
    for tag in ("Preprocessing", "Enrichment"):
        if reader.has(tag):
            reader.error(f"is not possible for messages of type {quoted(message_type)}", tag=tag)


def _fields(reader: ElementReader, tag: str, kind: ExpressionKind) -> tuple[str, ...]:
    section = reader.child(tag)
    return section.expressions("Field", kind) if section else ()


def _file_name(reader: ElementReader, durability: str, name: str, message_type: str) -> str | None:
    text = reader.text("FileName")
    if durability == "transient":
        return None
    if text is None:
        reader.error(
            "is missing: the topic is persistent, so it needs a file",
            "name one such as ./sow/%n.sow, or set Durability to transient",
            tag="FileName",
        )
        return None
    if "%n" in text and "/" in name:
        reader.info(
            f"%n stands for {quoted(f'{name}.{message_type}')}, which contains directories; "
            "they are made where they are missing",
            tag="FileName",
        )
    return text.replace("%n", f"{name}.{message_type}")


def check_shared_files(specs: Iterable[SowSpec], report: CompileReport) -> None:
    """Report SOW topics that would keep their records in one file."""
    owners: dict[str, TopicSpec] = {}
    for spec in specs:
        if not isinstance(spec, TopicSpec) or spec.file_name is None:
            continue
        path = posixpath.normpath(spec.file_name)
        owner = owners.setdefault(path, spec)
        if owner is not spec and owner.ref != spec.ref:
            report.error(
                spec,
                "Topic/FileName",
                f"{quoted(spec.file_name)} is already the file of {owner.ref} at {owner.location}",
                "every topic needs a file of its own; %n stands for name and type",
            )
