"""Runs all benchmarks, or those named: `python -m benchmarks [NAME ...]`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

NOT_BENCHMARKS = {"__init__", "__main__", "harness", "journal_server", "rabbitmq", "spark_runs"}


def main(names: list[str]) -> None:
    """Run benchmarks one after the other."""
    available = {path.stem for path in Path(__file__).parent.glob("*.py")} - NOT_BENCHMARKS
    for name in names or sorted(available):
        importlib.import_module(f"benchmarks.{name}").main()


if __name__ == "__main__":
    main(sys.argv[1:])
