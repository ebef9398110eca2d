"""Checks that the machine has the files and directories that a configuration expects.

Missing ones are warnings, because the check may run on another machine than the instance will.
The server creates the directories of files that it writes, so only those that cannot be created
are reported.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeAlias

from config_schema.document import ConfigNode
from config_schema.problems import Problems
from config_schema.units import parse_bool
from server.log.targets.file import FORMATS, file_name


def check_expected_files(root: ConfigNode, problems: Problems) -> None:
    """Warn of missing files and directories that a start needs.

    Args:
        root: the configuration in canonical names, without errors.
        problems: gets the warnings.
    """
    for path, parent, node in _walk(root, ""):
        missing = _MISSING.get(path) if node.text else None
        sentence = missing and missing(parent, node)
        if sentence:
            hint = f"{_OUTCOMES.get(path, _FAILURE)}, if this is the machine that it is for"
            problems.warning(node, f"{parent.written_tag}/{node.written_tag}", sentence, hint)


def _walk(node: ConfigNode, path: str) -> Iterator[tuple[str, ConfigNode, ConfigNode]]:
    for child in node.children:
        child_path = f"{path}/{child.tag}".lstrip("/")
        yield child_path, node, child
        yield from _walk(child, child_path)


def _file(_parent: ConfigNode, node: ConfigNode) -> str | None:
    return None if os.path.isfile(node.text) else f"there is no file {node.text}"


def _authorities(parent: ConfigNode, node: ConfigNode) -> str | None:
    if not parse_bool(parent.value("VerifyClient") or "false"):
        return None  # they are not read
    return None if os.path.exists(node.text) else f"there is no {node.text}"


def _directory_of_log(parent: ConfigNode, node: ConfigNode) -> str | None:
    written = FORMATS.get((parent.value("Protocol") or "").lower())
    if written is None:
        return None
    return _obstacle(file_name(node.text, written.suffix, 0, time.time_ns()))


def _directory_of_statistics(_parent: ConfigNode, node: ConfigNode) -> str | None:
    return _obstacle(node.text)


def _directory_of_socket(parent: ConfigNode, node: ConfigNode) -> str | None:
    directory = os.path.dirname(node.text) or "."
    if parent.value("Type") != "amps-unix" or os.path.isdir(directory):
        return None
    return f"there is no directory {directory}"


def _obstacle(path: str) -> str | None:
    """Return why the directory of a file cannot be created; None if it exists or can be."""
    directory = above = os.path.dirname(path) or "."
    while not os.path.exists(above):
        above = os.path.dirname(above) or "."
    if not os.path.isdir(above):
        return f"the directory {directory} cannot be made: {above} is no directory"
    if above != directory and not os.access(above, os.W_OK | os.X_OK):
        return f"the directory {directory} cannot be made: this user may not write to {above}"
    return None


_MissingFileCheck: TypeAlias = Callable[[ConfigNode, ConfigNode], str | None]


def _tls_checks(transport: str) -> Mapping[str, _MissingFileCheck]:
    """Return the checks for the TLS files of a transport."""
    return {
        f"{transport}/Certificate": _file,
        f"{transport}/PrivateKey": _file,
        f"{transport}/CAFile": _authorities,
        f"{transport}/CAPath": _authorities,
    }


_MISSING: Final[Mapping[str, _MissingFileCheck]] = {
    **_tls_checks("Transports/Transport"),
    **_tls_checks("Replication/Destination/Transport"),
    **_tls_checks("Admin"),
    "Transports/Transport/FileName": _directory_of_socket,
    "Logging/Target/FileName": _directory_of_log,
    "Admin/FileName": _directory_of_statistics,
}
"""The check for each element; it returns a sentence about a missing file, or None."""

_FAILURE: Final = "a start would fail"
_OUTCOMES: Final[Mapping[str, str]] = {
    "Admin/FileName": "statistics would be kept in memory only",
}
"""The outcome of a start without the directory, for elements where the start does not fail."""
