"""Checking the bodies of many entries."""

import numpy as np
import numpy.typing as npt

def damaged(
    data: bytes,
    starts: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
    checksums: npt.NDArray[np.uint32],
) -> list[int]:
    """Find bodies that are damaged, or are not there.

    Args:
        data: bytes among which the bodies are, with what stands behind each of them.
        starts: where they begin.
        ends: and end.
        checksums: the checksums that they should have.

    Returns:
        Their places among the bodies.

    Raises:
        ValueError: there are not as many of one as of the other.
    """
