"""Errors for statements that are not supported, with alternatives."""

from __future__ import annotations

from typing import Final

from server.sql.query.errors import SqlError
from server.sql.sqlstate import FEATURE_NOT_SUPPORTED

_WRITES: Final = frozenset({"INSERT", "UPDATE", "DELETE", "MERGE", "TRUNCATE"})
_DEFINITIONS: Final = frozenset(
    {
        *("CREATE", "ALTER", "DROP", "COMMENT", "GRANT", "REVOKE", "REINDEX", "REFRESH"),
        *("CLUSTER", "SECURITY", "REASSIGN", "IMPORT"),
    }
)

_ALTERNATIVES: Final = {
    "SUBSCRIBE": "Use COPY (SUBSCRIBE ...) TO STDOUT, or DECLARE ... CURSOR FOR SUBSCRIBE ....",
    "PREPARE": "Prepare statements by the protocol, as drivers do.",
    "EXECUTE": "Execute prepared statements by the protocol, as drivers do.",
    "CALL": "There are no procedures.",
    "DO": "There are no procedures.",
    "LOCK": "A query reads one consistent snapshot of all its tables without locks.",
    "VACUUM": "The server maintains its files by itself; see the actions of the configuration.",
    "ANALYZE": "Queries need no statistics of tables.",
    "CHECKPOINT": "The server maintains its files by itself.",
    "LOAD": "Modules are loaded by the configuration.",
    "ATTACH": "Queries read the topics of this instance.",
    "DETACH": "Queries read the topics of this instance.",
    "PRAGMA": "Use SET and SHOW.",
    "INSTALL": "Modules are loaded by the configuration.",
    "USE": "Use SET search_path.",
    "EXPORT": "Use COPY ... TO STDOUT.",
    "DESCRIBE": "Use psql's \\d, or information_schema.columns.",
    "SUMMARIZE": "Use aggregates, such as SELECT min(x), max(x).",
}
"""The alternatives to statements that are not supported."""


def refusal(word: str, position: int) -> SqlError | None:
    """Return the error for a statement.

    Args:
        word: its first word, in upper case.
        position: where it begins.

    Returns:
        None if PostgreSQL has no such statement.
    """
    if word in _WRITES:
        text = f"{word} is not supported here"
        hint = "Write by INSERT, UPDATE and DELETE, which are statements of their own."
    elif word in _DEFINITIONS:
        text = "tables are not defined by SQL"
        hint = "Topics, views and their permissions are defined in the configuration."
    elif word in _ALTERNATIVES:
        text = f"{word} is not a statement of this server"
        hint = _ALTERNATIVES[word]
    else:
        return None
    return SqlError(FEATURE_NOT_SUPPORTED, text, hint=hint, position=position)
