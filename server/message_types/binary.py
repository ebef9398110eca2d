"""The message type `binary`: bytes that the server does not interpret."""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.message_types.base import Capabilities, TypeWithoutOptions
from server.message_types.literal import LiteralType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from server.message_types.base import Extractor
    from server.message_types.paths import Path


class BinaryType(TypeWithoutOptions, LiteralType):
    """`binary`; it has no options and its bodies have no fields."""

    capabilities = Capabilities(fields=False, delta=False, build=False, select=False)

    def extractor(self, paths: Sequence[Path]) -> Extractor:
        """Return a reader for which every path is NULL."""
        nothing = (None,) * len(paths)
        return lambda _body: nothing
