"""The line that the server prints at its start, and for `--version`."""

from __future__ import annotations

from typing import Final

from config_schema.version import AMPS_VERSION, VERSION

BANNER: Final = f"Amperage {VERSION} - runs configurations written for AMPS {AMPS_VERSION}"
