"""The first message of a session: the user, the database and settings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from server.sql.postgres.events import StartupRequested
from server.sql.postgres.frontend_messages import ProtocolViolationError, StartupMessage
from server.sql.sqlstate import FEATURE_NOT_SUPPORTED, INVALID_AUTHORIZATION

_OPTION_PREFIX: Final = "_pq_."
_WORD: Final = re.compile(r"(?:[^\s\\]|\\.)++", re.DOTALL)
_SETTING: Final = re.compile(r"(?:-c\s*|--)([\w.-]+)=(.*)", re.DOTALL)
_NO_REPLICATION: Final = ("", "false", "off", "no", "0")


def read_startup(startup: StartupMessage) -> tuple[StartupRequested, Sequence[str]]:
    """Return the event of a first message, and the options of the protocol that are unknown.

    Raises:
        ProtocolViolationError: it names no user, or asks for replication.
    """
    parameters = dict(startup.parameters)
    unknown = [name for name in parameters if name.startswith(_OPTION_PREFIX)]
    for name in unknown:
        del parameters[name]
    user = parameters.pop("user", "")
    database = parameters.pop("database", "") or user
    if not user:
        raise ProtocolViolationError(
            "no PostgreSQL user name specified in startup packet", INVALID_AUTHORIZATION
        )
    if parameters.pop("replication", "").lower() not in _NO_REPLICATION:
        raise ProtocolViolationError("replication is not supported", FEATURE_NOT_SUPPORTED)
    parameters = {**_settings_in_options(parameters.pop("options", "")), **parameters}
    return StartupRequested(user, database, parameters), unknown


def _settings_in_options(options: str) -> dict[str, str]:
    """Return the settings in the parameter "options": -c name=value and --name=value.

    A space in a value has a backslash before it. Other options of PostgreSQL are ignored.
    """
    words = [re.sub(r"\\(.)", r"\1", word, flags=re.DOTALL) for word in _WORD.findall(options)]
    settings = {}
    position = 0
    while position < len(words):
        word = words[position]
        if word == "-c" and position + 1 < len(words):
            position += 1
            word += words[position]
        if (match := _SETTING.fullmatch(word)) is not None:
            settings[match[1].replace("-", "_")] = match[2]
        position += 1
    return settings
