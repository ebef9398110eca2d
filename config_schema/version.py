"""The two versions that matter: ours, and that of the AMPS server whose configurations we run."""

from typing import Final

VERSION: Final = "0.1.0"
"""Amperage's own version."""

AMPS_VERSION: Final = "5.3.5.135"
"""The AMPS version whose configuration language and behaviour this project implements.

`${AMPS_VERSION}` expands to it, and RequiredMinimumVersion is compared with it.
"""
