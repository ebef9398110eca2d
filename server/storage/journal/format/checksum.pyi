"""Checksum tests of the bodies of many entries."""

import numpy as np
import numpy.typing as npt

def damaged(
    data: bytes,
    starts: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
    checksums: npt.NDArray[np.uint32],
) -> list[int]:
    """Find bodies that are damaged or missing.

    Args:
        data: bytes that contain the bodies, with the extras after each of them.
        starts: offsets at which they begin.
        ends: offsets at which they end, with the extras.
        checksums: the expected checksums.

    Returns:
        The positions of damaged ones in the arrays.

    Raises:
        ValueError: the arrays have different lengths.
    """
