"""Frames in a row, where frame_slices.pyx is not compiled: they are cut one by one."""

from __future__ import annotations


def cut_run(
    chunk: bytes,  # noqa: ARG001 - as in frame_slices.pyi
    start: int,
    left: bytes,  # noqa: ARG001
    right: bytes | None,  # noqa: ARG001
    limit: int,  # noqa: ARG001
) -> tuple[tuple[bytes, ...], tuple[bytes, ...], int]:
    """Cut no frame: `FrameReader` cuts those that no run has. See frame_slices.pyi."""
    return (), (), start
