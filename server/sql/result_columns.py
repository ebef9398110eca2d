"""The columns of results, as they were described to a client and as they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from server.sql.postgres.types import ResultColumn
from server.sql.query.errors import SqlError
from server.sql.sqlstate import FEATURE_NOT_SUPPORTED

if TYPE_CHECKING:
    from server.sql.query.results import QueryColumn

REVALIDATION: Final = "RevalidateCachedQuery"
"""The function of PostgreSQL that finds changed results: drivers prepare again because of it."""


_HINT: Final = "Prepare the statement again."


class ResultChangedError(SqlError):
    """The result has other columns than the client was told: a column has been widened.

    Args:
        hint: what the client has to do again.
    """

    def __init__(self, hint: str) -> None:
        super().__init__(
            FEATURE_NOT_SUPPORTED, "cached plan must not change result type", hint=hint
        )


def to_result_columns(columns: Sequence[QueryColumn]) -> tuple[ResultColumn, ...]:
    """Return columns of a query as the protocol describes them."""
    return tuple(ResultColumn(column.name, column.oid) for column in columns)


def check_unchanged(
    described: Sequence[ResultColumn] | None,
    columns: Sequence[ResultColumn],
    hint: str = _HINT,
) -> None:
    """Check that a client can decode rows by the columns that were described to it.

    Args:
        described: these columns; None if it has not asked.
        columns: the columns of the result.
        hint: what the client has to do again.

    Raises:
        ResultChangedError: they have other names or types.
    """
    if described is not None and _types(described) != _types(columns):
        raise ResultChangedError(hint)


def _types(columns: Sequence[ResultColumn]) -> list[tuple[str, int]]:
    return [(column.name, column.type_oid) for column in columns]
