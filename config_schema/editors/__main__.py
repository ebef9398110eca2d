"""Writes the schemas for editors into a directory."""

import sys
from collections.abc import Sequence
from pathlib import Path

from config_schema.editors import SCHEMAS


def main(arguments: Sequence[str]) -> int:
    """Write the files.

    Args:
        arguments: the directory.

    Returns:
        The exit status.
    """
    match arguments:
        case [directory]:
            for language, make in SCHEMAS.items():
                Path(directory, f"amps-config.{language}").write_text(make(), encoding="utf-8")
            return 0
        case _:
            sys.stderr.write("usage: python -m config_schema.editors DIRECTORY\n")
            return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
