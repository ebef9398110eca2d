"""The options field of a command, which requests the parts of messages for the columns."""

from __future__ import annotations

import re
from typing import Final

from pipeline.amps.options import AmpsOptions
from pipeline.rows import RowFormat
from server.expressions.printer import path_to_text

_WRITABLE: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def command_options(options: AmpsOptions, rows: RowFormat) -> str | None:
    """Complete the options of a query or a subscription.

    Args:
        options: the options of the user.
        rows: the row format with the columns.
    """
    option_text = options.options
    parts = [] if option_text is None else [option_text]
    names = {part.partition("=")[0].strip() for part in (option_text or "").split(",")}
    if "timestamp" in rows.metadata and "timestamp" not in names:
        parts.append("timestamp")
    select = _select(rows, options.message_type) if options.prune == "server" else None
    if select is not None and "select" not in names:
        parts.append(select)
    return ",".join(parts) or None


def _select(rows: RowFormat, message_type: str | None) -> str | None:
    """Return a select list of the columns; None if whole bodies are needed."""
    if rows.has_bodies or message_type != "json":
        return None
    names = rows.fields.names
    if not all(_WRITABLE.fullmatch(name) for name in names):
        return None
    selectors = ["-/", *(f"+{path_to_text((name,))}" for name in names)]
    return f"select=[{','.join(selectors)}]"
