"""The relations of the catalogue that show the session: its settings and its activity."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from server.sql.query.session import SqlSession

OWNER_OID: Final = 10
DATABASE_OID: Final = 5
"""The OIDs of the user and of the database."""


def session_settings(session: SqlSession) -> Iterator[dict[str, Any]]:
    """Yield the rows of `pg_settings`."""
    for name, value, description in session.settings():
        yield {
            "name": name,
            "setting": value,
            "short_desc": description,
            "context": "user",
            "category": "Client",
            "vartype": "string",
            "source": "default",
            "boot_val": value,
            "reset_val": value,
            "pending_restart": False,
        }


def session_activity(session: SqlSession) -> Iterator[dict[str, Any]]:
    """Yield the rows of `pg_stat_activity`: the session itself."""
    yield {
        "datid": DATABASE_OID,
        "datname": session.database,
        "pid": session.process_id,
        "usesysid": OWNER_OID,
        "usename": session.user,
        "state": "active",
        "application_name": session.setting("application_name"),
        "backend_type": "client backend",
    }
