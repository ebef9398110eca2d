"""What is made and freed over and over takes its memory from the system once."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

_PAGES_TAKEN: str = """
import resource, sys
from server.process import allocator
allocator.limit_memory_trim()
def make():
    return [bytes([1]) * 300_000 for _ in range(10)]
for _ in range(3):
    make()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    make()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def pages_taken(**variables: str) -> int:
    """Pages that a process has had filled for pieces that it had had room for before."""
    environment = {name: value for name, value in os.environ.items() if "MALLOC" not in name}
    run = subprocess.run(
        [sys.executable, "-c", _PAGES_TAKEN],
        env={**environment, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    return int(run.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators do as they do")
def test_memory_that_has_been_freed_is_used_again() -> None:
    assert pages_taken() < 1000
    assert pages_taken(MALLOC_TRIM_THRESHOLD_="131072", MALLOC_MMAP_THRESHOLD_="131072") > 10_000
