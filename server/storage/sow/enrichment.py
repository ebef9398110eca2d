"""Preprocessing and enrichment: fields that the server adds to messages as they are published.

All fields of a stage are computed from the message as received, unless an earlier field has HINT
SET_CURRENT: then later fields see its value. At the end all values are set in the message at
once. HINT OPTIONAL removes a field with the value NULL instead of writing a NULL.

Source: AMPS User Guide, State of the World Message Enrichment; Constructing Fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from server.expressions.backends.compile_message import Evaluator, compile_value
from server.expressions.functions.registry import Functions
from server.expressions.inference import with_inferred_types
from server.expressions.message_context import MessageContext
from server.expressions.tree import Call, Field, Reference, references, walk
from server.message_types.base import Extractor, MessageType, Value
from server.message_types.paths import Path, format_path
from server.message_types.select_list import FieldSelection, parse_selection


@dataclass(frozen=True, slots=True)
class _EnrichmentStep:
    """Fields that are computed from the same state of the message.

    Attributes:
        current: reads values from the message, perhaps none.
        previous: reads values from the previous record; None if no field needs any.
        evaluators: one for each field, over the values of both.
        fields: the fields.
    """

    current: Extractor
    previous: Extractor | None
    previous_count: int
    evaluators: tuple[Evaluator, ...]
    fields: tuple[Field, ...]


class EnrichmentStage:
    """One stage, compiled.

    Args:
        fields: its fields in the order of the configuration.
        message_type: the topic's message type.
        functions: implementations of the functions that they call.

    Attributes:
        needs_context: whether they read the context of the message.
        reads_previous: whether they read the record that the message updates.
        reads_others: whether they read other records.
    """

    def __init__(
        self, fields: Sequence[Field], message_type: MessageType, functions: Functions
    ) -> None:
        self._type = message_type
        self._steps = [_compile(step, message_type, functions) for step in _steps(fields)]
        called = [
            functions[node.name]
            for field in fields
            for node in walk(field.source)
            if isinstance(node, Call)
        ]
        self.needs_context: Final = any(one.context_attribute is not None for one in called)
        self.reads_previous: Final = any(step.previous is not None for step in self._steps)
        self.reads_others: Final = any(one.is_lookup for one in called)
        self._removals = {
            field.destination: parse_selection(f"-{format_path(field.destination)}")
            for field in fields
            if field.is_optional and message_type.capabilities.select
        }

    def apply(self, body: bytes, previous: bytes | None, context: MessageContext) -> bytes:
        """Return the message with its fields set.

        Args:
            body: the message.
            previous: the record that it updates, None if there is none.
            context: the context of the message that functions can read.

        Raises:
            BodyError: the message cannot be parsed.
        """
        computed: list[tuple[Field, Value]] = []
        current = body
        for step in self._steps:
            values = step.current(current)
            if step.previous is not None:
                values += (
                    (None,) * step.previous_count if previous is None else step.previous(previous)
                )
            results = [evaluate(values, context) for evaluate in step.evaluators]
            computed.extend(zip(step.fields, results, strict=True))
            if step.fields[-1].set_current:
                current = self._set_fields(current, computed[-1:])
        return self._set_fields(body, computed)

    def _set_fields(self, body: bytes, computed: Sequence[tuple[Field, Value]]) -> bytes:
        updates: list[tuple[Path, Value]] = []
        removed: list[FieldSelection] = []
        for field, value in computed:
            if value is not None or not field.is_optional:
                updates.append((field.destination, value))
            elif field.destination in self._removals:
                removed.append(self._removals[field.destination])
        for selection in removed:
            body = self._type.select(body, selection)
        return self._type.update(body, updates) if updates else body


def _steps(fields: Sequence[Field]) -> list[list[Field]]:
    """Split the fields into steps, after each field that later ones can see."""
    steps: list[list[Field]] = [[]]
    for field in fields:
        steps[-1].append(field)
        if field.set_current:
            steps.append([])
    return [step for step in steps if step]


def _compile(
    fields: Sequence[Field], message_type: MessageType, functions: Functions
) -> _EnrichmentStep:
    inputs: dict[Reference, None] = {}
    for field in fields:
        inputs.update(dict.fromkeys(references(field.source)))
    current = [reference for reference in inputs if reference.state != "previous"]
    previous = [reference for reference in inputs if reference.state == "previous"]
    layout = (*current, *previous)
    return _EnrichmentStep(
        message_type.extractor([reference.path for reference in current]),
        message_type.extractor([reference.path for reference in previous]) if previous else None,
        len(previous),
        tuple(
            compile_value(with_inferred_types(field.source, message_type), functions, layout)
            for field in fields
        ),
        tuple(fields),
    )
