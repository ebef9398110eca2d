"""The settings of a SQL session: SET, SHOW, RESET and `current_setting` read and change them.

Most settings change nothing here, but drivers set them and expect no error. Source: PostgreSQL
documentation, Client Connection Defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from server.sql.query.errors import SqlError
from server.sql.sqlstate import CANT_CHANGE_RUNTIME_PARAM, INVALID_PARAMETER_VALUE, UNDEFINED_OBJECT

SERVER_VERSION: Final = "16.0"
"""The version of PostgreSQL that drivers adapt to."""

WRITES_SETTING: Final = "amperage.writes"
"""The setting that allows writes in transaction blocks."""
IMMEDIATE: Final = "immediate"
_WRITES_VALUES: Final = ("autocommit", IMMEDIATE)

UNKNOWN_SETTING: Final = "unrecognized configuration parameter"
"""The beginning of an error's text; the name follows in quotes."""

MAX_CUSTOM_SETTINGS: Final = 100
MAX_VALUE_LENGTH: Final = 10_000


class SqlSetting(NamedTuple):
    """A setting of a session.

    Attributes:
        default: the value at the start.
        description: shown by `pg_settings`.
        is_fixed: SET is an error.
        is_reported: reported to clients when it changes (ParameterStatus).
    """

    default: str
    description: str = ""
    is_fixed: bool = False
    is_reported: bool = False


SETTINGS: Final[dict[str, SqlSetting]] = {
    WRITES_SETTING: SqlSetting(
        "autocommit", "Writes in transaction blocks are refused, or take effect at once."
    ),
    "application_name": SqlSetting("", "Name of the client's application.", is_reported=True),
    "bytea_output": SqlSetting("hex", "Output format of bytea."),
    "client_encoding": SqlSetting("UTF8", "Encoding of the client.", is_reported=True),
    "client_min_messages": SqlSetting("notice", "Least level of messages to the client."),
    "datestyle": SqlSetting("ISO, MDY", "Output format of dates.", is_reported=True),
    "default_transaction_isolation": SqlSetting("repeatable read", "Isolation of transactions."),
    "default_transaction_read_only": SqlSetting("off", "Transactions are read only."),
    "default_table_access_method": SqlSetting("heap"),
    "default_tablespace": SqlSetting(""),
    "default_text_search_config": SqlSetting("pg_catalog.simple"),
    "extra_float_digits": SqlSetting("1", "Digits of floating-point numbers."),
    "in_hot_standby": SqlSetting("off", is_fixed=True, is_reported=True),
    "integer_datetimes": SqlSetting("on", is_fixed=True, is_reported=True),
    "intervalstyle": SqlSetting("postgres", "Output format of intervals.", is_reported=True),
    "is_superuser": SqlSetting("off", is_fixed=True, is_reported=True),
    "jit": SqlSetting("off"),
    "lc_collate": SqlSetting("C", is_fixed=True),
    "lc_ctype": SqlSetting("C.UTF-8", is_fixed=True),
    "lc_messages": SqlSetting("C"),
    "lc_monetary": SqlSetting("C"),
    "lc_numeric": SqlSetting("C"),
    "lc_time": SqlSetting("C"),
    "lo_compat_privileges": SqlSetting("off"),
    "lock_timeout": SqlSetting("0"),
    "idle_in_transaction_session_timeout": SqlSetting("0"),
    "idle_session_timeout": SqlSetting("0"),
    "max_identifier_length": SqlSetting("63", is_fixed=True),
    "max_index_keys": SqlSetting("32", is_fixed=True),
    "max_connections": SqlSetting("100", is_fixed=True),
    "max_parallel_workers_per_gather": SqlSetting("0"),
    "plan_cache_mode": SqlSetting("auto"),
    "quote_all_identifiers": SqlSetting("off"),
    "random_page_cost": SqlSetting("4"),
    "row_security": SqlSetting("on"),
    "search_path": SqlSetting("amps, pg_catalog", "Schemas of unqualified names."),
    "server_encoding": SqlSetting("UTF8", is_fixed=True, is_reported=True),
    "server_version": SqlSetting(SERVER_VERSION, is_fixed=True, is_reported=True),
    "server_version_num": SqlSetting("160000", is_fixed=True),
    "session_authorization": SqlSetting("", is_fixed=True, is_reported=True),
    "ssl": SqlSetting("off", is_fixed=True),
    "standard_conforming_strings": SqlSetting("on", is_reported=True),
    "statement_timeout": SqlSetting("0", "Longest time of a statement in milliseconds."),
    "synchronize_seqscans": SqlSetting("on"),
    "timezone": SqlSetting("UTC", "Time zone of dates and times.", is_reported=True),
    "transaction_isolation": SqlSetting("repeatable read"),
    "transaction_read_only": SqlSetting("off"),
    "transaction_deferrable": SqlSetting("off"),
    "transaction_timeout": SqlSetting("0"),
    "work_mem": SqlSetting("4MB"),
    "xmloption": SqlSetting("content"),
    "enable_seqscan": SqlSetting("on"),
    "escape_string_warning": SqlSetting("on"),
    "array_nulls": SqlSetting("on"),
    "backslash_quote": SqlSetting("safe_encoding"),
    "check_function_bodies": SqlSetting("on"),
}
"""The settings by their names in lower case."""

_SPELLINGS: Final = {
    "datestyle": "DateStyle",
    "intervalstyle": "IntervalStyle",
    "timezone": "TimeZone",
}

_TIME_UNITS_MS: Final = {"us": 0.001, "ms": 1, "s": 1000, "min": 60_000, "h": 3_600_000}


class SqlSession:
    """A client's session, as statements see it.

    Attributes:
        user: the authenticated user.
        database: the name of the database: that of the instance.
        process_id: the result of `pg_backend_pid()`.
        version: the result of `version()`.
        notify: publishes a payload to a channel, for `pg_notify`; None if the session cannot.
    """

    def __init__(self, user: str, database: str, process_id: int = 0) -> None:
        self.user = user
        self.database = database
        self.process_id = process_id
        self.version = f"PostgreSQL {SERVER_VERSION} (Amperage)"
        self.notify: Callable[[str, str], None] | None = None
        self._values: dict[str, str] = {}

    def setting(self, name: str, *, missing_ok: bool = False) -> str | None:
        """Return the value of a setting.

        Raises:
            SqlError: there is no such setting, and it must exist.
        """
        key = name.lower()
        if key == "session_authorization":
            return self.user
        value = self._values.get(key)
        if value is not None:
            return value
        known = SETTINGS.get(key)
        if known is not None:
            return known.default
        if missing_ok:
            return None
        raise SqlError(UNDEFINED_OBJECT, f'{UNKNOWN_SETTING} "{name}"')

    def set(self, name: str, value: str | None) -> None:
        """Set a setting; None for its default.

        Settings that are unknown need a name with a dot, as in PostgreSQL.

        Raises:
            SqlError: there is no such setting, it is fixed, or the value is not allowed.
        """
        key = name.lower()
        known = SETTINGS.get(key)
        if known is None and "." not in key:
            raise SqlError(UNDEFINED_OBJECT, f'{UNKNOWN_SETTING} "{name}"')
        if known is not None and known.is_fixed:
            raise SqlError(CANT_CHANGE_RUNTIME_PARAM, f'parameter "{name}" cannot be changed')
        if value is None:
            self._values.pop(key, None)
            return
        value = self._checked(key, value)
        is_full = len(self._values) >= MAX_CUSTOM_SETTINGS and key not in self._values
        if is_full or len(value) > MAX_VALUE_LENGTH:
            raise SqlError(INVALID_PARAMETER_VALUE, "the session has too many settings")
        self._values[key] = value

    def reset(self) -> None:
        """Set all settings to their defaults."""
        self._values.clear()

    def settings(self) -> Iterator[tuple[str, str, str]]:
        """Yield the name, value and description of all settings, in order."""
        for key in sorted({*SETTINGS, *self._values}):
            known = SETTINGS.get(key)
            value = self.setting(key) or ""
            yield spelling(key), value, known.description if known else ""

    def reported(self) -> dict[str, str]:
        """Return the settings that a client is told by ParameterStatus, by their names."""
        return {
            spelling(key): self.setting(key) or ""
            for key, setting in SETTINGS.items()
            if setting.is_reported
        }

    @property
    def statement_timeout_s(self) -> float:
        """The client's own limit of the time of a statement in seconds; 0 for none."""
        return _milliseconds(self.setting("statement_timeout") or "0") / 1000

    def _checked(self, key: str, value: str) -> str:
        if key == "client_encoding":
            if value.replace("-", "").replace("_", "").upper() not in ("UTF8", "UNICODE"):
                raise SqlError(
                    INVALID_PARAMETER_VALUE,
                    f'invalid value for parameter "client_encoding": "{value}"',
                    hint="The only encoding is UTF8.",
                )
            return "UTF8"
        if key == WRITES_SETTING:
            if value.lower() not in _WRITES_VALUES:
                raise SqlError(
                    INVALID_PARAMETER_VALUE,
                    f'invalid value for parameter "{WRITES_SETTING}": "{value}"',
                    hint="Values are autocommit and immediate.",
                )
            return value.lower()
        if key == "statement_timeout":
            _milliseconds(value)
        return value


def spelling(key: str) -> str:
    """Return the name of a setting as PostgreSQL reports it."""
    return _SPELLINGS.get(key, key)


def _milliseconds(text: str) -> float:
    number = text.strip().rstrip("abcdefghijklmnopqrstuvwxyz ")
    unit = text.strip()[len(number) :].strip() or "ms"
    try:
        return max(0.0, float(number) * _TIME_UNITS_MS[unit])
    except (ValueError, KeyError):
        raise SqlError(
            INVALID_PARAMETER_VALUE,
            f'invalid value for parameter "statement_timeout": "{text}"',
            hint='Valid units are "us", "ms", "s", "min" and "h".',
        ) from None
