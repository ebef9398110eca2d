"""The two versions: that of this program, and that of the AMPS server it is compatible with."""

from typing import Final

VERSION: Final = "0.1.0"
"""Amperage's own version."""

AMPS_VERSION: Final = "5.3.5.135"
"""The AMPS version whose configuration language and behaviour this project implements.

`${AMPS_VERSION}` expands to it, and RequiredMinimumVersion is compared with it.
"""


BANNER: Final = f"Amperage {VERSION} - runs configurations written for AMPS {AMPS_VERSION}"
