"""Content filters of AMPS over the messages of a journal."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from pipeline.errors import PipelineError
from pipeline.journal.pieces import Block
from server.expressions import parse, paths
from server.expressions.compile_message import compile_filter
from server.message_types.base import MessageTypeError
from server.message_types.registry import MessageTypes


class ContentFilter:
    """A content filter.

    Args:
        text: the filter; it has been found to be good.
    """

    def __init__(self, text: str) -> None:
        expr = parse(text)
        self._paths = paths(expr)
        self._predicate = compile_filter(expr)
        self._types = MessageTypes()
        self._tests: dict[str, Callable[[memoryview], bool]] = {}

    def matches(self, block: Block) -> npt.NDArray[np.bool_]:
        """Which messages of a block match.

        Raises:
            PipelineError: messages of that type cannot be read without its configuration.
        """
        types = block.names.message_types
        tests = {number: self._test(kind) for number, kind in types.items()}
        topics = block.records["topic"].tolist()
        found = (tests[one](body) for one, body in zip(topics, block.bodies(), strict=True))
        return np.fromiter(found, np.bool_, len(topics))

    def _test(self, kind: str) -> Callable[[memoryview], bool]:
        test = self._tests.get(kind)
        if test is None:
            try:
                extract = self._types.get(kind).extractor(self._paths)
            except MessageTypeError as problem:
                raise PipelineError(f"option filter: message type {kind}: {problem}") from problem
            predicate = self._predicate
            test = self._tests[kind] = lambda body: predicate(extract(bytes(body)))
        return test
