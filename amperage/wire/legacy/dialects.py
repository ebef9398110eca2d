"""The legacy protocols, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from amperage.wire.legacy.dialect import Dialect
from amperage.wire.legacy.envelope import EnvelopeDialect
from amperage.wire.legacy.fix import FixDialect

DIALECTS: Final[Mapping[str, Dialect]] = {
    "fix": FixDialect(),
    "nvfix": FixDialect(),
    "xml": EnvelopeDialect(namespaces=False),
    "soap": EnvelopeDialect(namespaces=True),
}
"""The dialect of each protocol without further configuration."""
