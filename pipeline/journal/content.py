"""Content filters of AMPS over the messages of a journal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pipeline.errors import OptionError
from pipeline.journal.partitions import JournalBlock
from pipeline.packed_bodies import PackedBodies
from server.expressions import parse, paths
from server.expressions.backends.compile_message import Predicate, compile_filter
from server.expressions.inference import with_inferred_types
from server.message_types.base import MessageTypeError
from server.message_types.bulk import BulkExtractor, bulk_extractor
from server.message_types.registry import MessageTypes

if TYPE_CHECKING:
    from pipeline.expressions.environment import Environment


class JournalContentFilter:
    """A content filter.

    Args:
        text: the filter, already validated.
        environment: the message types of a configuration; None without one.
    """

    def __init__(self, text: str, environment: Environment | None) -> None:
        self._expr = parse(text)
        self._paths = paths(self._expr)
        self._types = MessageTypes().get if environment is None else environment.message_type
        self._readers: dict[str, tuple[BulkExtractor, Predicate]] = {}

    def matches(self, block: JournalBlock) -> npt.NDArray[np.bool_]:
        """Return the mask of the messages of a block that match.

        Raises:
            PipelineError: messages of that type cannot be read without its configuration.
        """
        types = block.names.message_types
        matching = np.zeros(len(block.records), np.bool_)
        for kind in set(types.values()):
            numbers = [number for number, name in types.items() if name == kind]
            places = np.flatnonzero(np.isin(block.records["topic"], numbers))
            if len(places):
                matching[places] = self._match_bodies(kind, block.select(places).bodies())
        return matching

    def _match_bodies(self, kind: str, bodies: PackedBodies) -> list[bool]:
        extract, predicate = self._reader(kind)
        if not self._paths:
            return [predicate(())] * len(bodies)
        values = extract(list(map(bytes, bodies)))
        return list(map(predicate, zip(*values, strict=True)))

    def _reader(self, kind: str) -> tuple[BulkExtractor, Predicate]:
        """Return the field extractor and the predicate for a message type."""
        reader = self._readers.get(kind)
        if reader is None:
            try:
                message_type = self._types(kind)
                extract = bulk_extractor(message_type, self._paths)
            except MessageTypeError as problem:
                raise OptionError(f"option filter: message type {kind}: {problem}") from problem
            reader = extract, compile_filter(with_inferred_types(self._expr, message_type))
            self._readers[kind] = reader
        return reader
