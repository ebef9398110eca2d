"""The options of `format("amps")`, named as in AMPS, in lower case."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeAlias

from pyspark.sql.datasource import Filter

from amperage.client import ClientError, ServerUri, parse_uri
from pipeline import tolerance
from pipeline.amps.login import ConnectionLogin
from pipeline.amps.uri import several
from pipeline.errors import INSTEAD_OF_TABLES, OptionError, is_asked, option_error
from pipeline.filters import OPTION, PUSHDOWN, read_filters, refuse_pushdown
from pipeline.kafka_names import with_own_names
from pipeline.tolerance import STRICT, Tolerance, read_tolerance

AccessMode: TypeAlias = Literal["read", "readStream", "write", "writeStream"]

COMMANDS: Final = ("publish", "delta_publish", "sow_delete")
FOLLOWED: Final = ("publish", "all")
PARTITIONED_BY: Final = ("key", "topic")
ORDERS: Final = ("checked", "given", "sorted")
PRUNES: Final = ("none", "server")
_BOOKMARK: Final = re.compile(r"\d+\|\d+\|", re.ASCII)
MAX_VERSION: Final = (1 << 31) - 1
"""The limit of a version in a sequence number; see `pipeline.amps.writer`."""
_MAX_COUNT: Final = (1 << 31) - 1
"""The limit of counts: some are 32-bit numbers in Spark."""

_READS: Final = frozenset({"read", "readStream"})
_WRITES: Final = frozenset({"write", "writeStream"})
_ALL: Final = _READS | _WRITES
_OF_SINKS: Final = frozenset({"checkpointlocation", "queryname", "path"})
"""Options that Spark reads, and passes on to the sink of a stream."""
_CERTIFICATES: Final = ("ca_file", "certificate_file", "key_file")
_LOGIN: Final = ("user", "password", "password_file", "password_env", *_CERTIFICATES)
_FIELDS: Final = {"server": "servers"}
"""Attributes with other names than their options."""
_AS_OF: Final = {"timestampasof": "timestampAsOf", "versionasof": "versionAsOf"}
"""Options of Delta for the bookmark of a past state, as users write them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AmpsOptions:
    """The options of a read or a write.

    Attributes:
        servers: the servers with the user, of which the first reachable one is used. Several are
            instances that stand in for each other.
        topic: a name; for reads also a regular expression; for writes None if rows have it.
        filter: a content filter.
        orderby: the order of the records, such as "/price DESC".
        top_n: the maximum number of records.
        bookmark: for a batch, the time whose state is read; for a stream, its beginning.
        options: the options field of the command, such as "conflation=1s".
        batch_size: records per frame of the server.
        client_name: the prefix of client names; a suffix makes them unique.
        command: one of `COMMANDS`.
        partitions: the number of tasks of a read.
        partition_by: "key" or "topic": the value that assigns a record to a task.
        prune: one of `PRUNES`: "server" to have it remove the fields that the schema does not name.
            For the server that is more work than sending them.
        sample: the number of records to infer the schema from; None leaves them as bodies.
        where: Spark's filters, which the server applies as far as it can, and Spark as well.
        max_rows_per_trigger: the maximum number of rows in a micro-batch; None for no limit.
        max_bytes_per_trigger: a micro-batch ends after this many bytes of bodies; None for no
            limit.
        min_rows_per_trigger: a micro-batch waits for this many rows; None for one.
        max_trigger_delay: the maximum seconds that it waits for them.
        fail_on_data_loss: whether a stream stops if the log does not have everything any more.
        commands: one of `FOLLOWED`: whether a stream includes deletions of records.
        consume: whether a stream consumes the messages of a queue, instead of reading its source.
        exactly_once: whether to require a topic for which the server detects duplicates; if not, a
            retried task publishes all of its rows again.
        write_id: the name of a batch write, the same in each retry, so that it is applied once.
        write_version: the version of this write; a later write has a higher number.
        order: one of `ORDERS`: how a retried task tells which of its rows the server has: by
            reading these back, by their order, or by an order that it sorts them in.
        tolerance: how messages are read, and how messages that do not fit are handled.
        timeout: seconds to wait for an answer of the server, and for a server to come back.
        login: the password and certificates.
    """

    servers: tuple[ServerUri, ...]
    topic: str | None = None
    filter: str | None = None
    orderby: str | None = None
    top_n: int | None = None
    bookmark: str | None = None
    options: str | None = None
    batch_size: int = 1000
    client_name: str | None = None
    command: str = "publish"
    partitions: int = 1
    partition_by: str = "key"
    prune: str = "none"
    sample: int | None = None
    where: tuple[Filter, ...] = ()
    max_rows_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    min_rows_per_trigger: int | None = None
    max_trigger_delay: float = 900.0
    fail_on_data_loss: bool = True
    commands: str = "publish"
    consume: bool = False
    exactly_once: bool = True
    write_id: str | None = None
    write_version: int = 0
    order: str = "checked"
    tolerance: Tolerance = STRICT
    timeout: float = 30.0
    login: ConnectionLogin = field(default_factory=ConnectionLogin)

    @property
    def server(self) -> str:
        """The servers, in a form that may be shown."""
        return ",".join(map(str, self.servers))

    @property
    def message_type(self) -> str | None:
        """The message type, if the URIs have one."""
        return self.servers[0].message_type

    @property
    def sorts(self) -> bool:
        """True if a task sorts its rows. The order of deletions makes no difference."""
        return self.order == "sorted" or (self.order == "checked" and self.command == "sow_delete")

    @property
    def has_deletions(self) -> bool:
        """True if deletions of records are included."""
        return self.commands == "all"

    @property
    def read_topic(self) -> str:
        """The topic of a read, which is always set."""
        return self.topic or ""


def read_options(options_by_name: Mapping[str, str], *uses: AccessMode) -> AmpsOptions:
    """Read and check the options of a DataFrame.

    Args:
        options_by_name: names in lower case, and texts.
        uses: the possible uses of the options.

    Raises:
        PipelineError: an option is unknown, missing, or has an invalid value.
    """
    values: dict[str, Any] = {}
    for name, text in with_own_names(options_by_name).items():
        if not is_asked(name):
            continue
        if name in _OF_SINKS and _WRITES.issuperset(uses):
            continue
        if name == PUSHDOWN:
            refuse_pushdown(text)
            continue
        reader = _OPTIONS.get(name)
        if reader is None:
            raise OptionError(f"option {name}: unknown; {_suggestion(name, uses)}")
        its_uses, convert = reader
        if its_uses.isdisjoint(uses):
            known = ", ".join(sorted(its_uses))
            shown = _AS_OF.get(name, name)
            raise OptionError(f"option {shown}: it is for {known}, and this is {uses[0]}")
        values[_FIELDS.get(name, name)] = convert(name, text)
    _take_as_of(values)
    values["tolerance"] = read_tolerance(options_by_name)
    for name in tolerance.NAMES:
        values.pop(name, None)
    login: dict[str, str] = {name: values.pop(name) for name in _LOGIN if name in values}
    if "servers" not in values:
        raise OptionError(
            "option server: missing; expected a URI such as tcp://localhost:9007/amps/json (Spark"
            f" does not pass options of a table to sources in Python: {INSTEAD_OF_TABLES})"
        )
    if _READS.issuperset(uses) and not values.get("topic"):
        raise OptionError("option topic: missing; expected a topic or a regular expression")
    servers = _as(values["servers"], login.pop("user", None), login.pop("password", None), login)
    values["servers"], values["login"] = servers, _login(login, servers)
    options = AmpsOptions(**values)
    if options.partitions > 1 and (options.top_n is not None or options.orderby is not None):
        name = "top_n" if options.top_n is not None else "orderby"
        raise option_error(
            "partitions", options.partitions, f"{name} applies to all records together: use 1"
        )
    _check_limits(options, values)
    _check_deletions(options)
    _check_identity(options, values)
    return options


def _take_as_of(values: dict[str, Any]) -> None:
    """Replace the options of Delta for a past state by the bookmark.

    Raises:
        PipelineError: several options name a point in time.
    """
    names = [name for name in ("bookmark", *_AS_OF) if name in values]
    if len(names) > 1:
        shown = " and ".join(_AS_OF.get(name, name) for name in names)
        raise OptionError(f"options {shown}: expected one of them")
    for name in names:
        values["bookmark"] = values.pop(name)


def _check_limits(options: AmpsOptions, options_by_name: Mapping[str, Any]) -> None:
    """Check that the limits of micro-batches are consistent.

    Raises:
        PipelineError: they are not.
    """
    min_rows, max_rows = options.min_rows_per_trigger, options.max_rows_per_trigger
    if min_rows is not None and max_rows is not None and min_rows > max_rows:
        raise option_error("min_rows_per_trigger", min_rows, f"max_rows_per_trigger is {max_rows}")
    if min_rows is None and "max_trigger_delay" in options_by_name:
        raise option_error(
            "max_trigger_delay", options.max_trigger_delay, "min_rows_per_trigger is missing"
        )


def _check_deletions(options: AmpsOptions) -> None:
    """Check that deletions are available, if they are requested.

    Raises:
        PipelineError: they are not.
    """
    if not options.has_deletions:
        return
    if options.consume:
        raise option_error("commands", options.commands, "messages of a queue are not records")
    if options.filter is not None:
        problem = "it excludes the option filter: a deletion has only the keys of its records"
        raise option_error("commands", options.commands, problem)


def _check_identity(options: AmpsOptions, options_by_name: Mapping[str, Any]) -> None:
    """Check that a write with a `write_id` can be told from its other runs.

    Raises:
        PipelineError: it cannot.
    """
    if options.write_id is None:
        if "write_version" in options_by_name:
            raise option_error("write_version", options.write_version, "write_id is missing")
    elif "write_version" not in options_by_name:
        raise option_error(
            "write_id", options.write_id, "write_version is missing: a number for each new write"
        )
    elif not options.exactly_once:
        raise option_error("write_id", options.write_id, "it requires exactly_once")


def _as(
    servers: tuple[ServerUri, ...], user: str | None, password: str | None, others: Collection[str]
) -> tuple[ServerUri, ...]:
    """Return the servers with the user and the password of the options."""
    elsewhere = [name for name in ("password_file", "password_env") if name in others]
    password_options = elsewhere if password is None else ["password", *elsewhere]
    if len(password_options) > 1:
        raise OptionError(f"options {' and '.join(password_options)}: expected one of them")
    if user is not None:
        servers = tuple(replace(server, user=user) for server in servers)
    if password is not None:
        servers = tuple(replace(server, password=password) for server in servers)
    return servers


def _login(options_by_name: Mapping[str, str], servers: Sequence[ServerUri]) -> ConnectionLogin:
    """Return the credentials; reads the password, so that a mistake is reported at once."""
    for name in _CERTIFICATES:
        if name in options_by_name and not any(server.is_encrypted for server in servers):
            raise option_error(
                name, options_by_name[name], "it requires servers of tcps:// or wss://"
            )
    if "key_file" in options_by_name and "certificate_file" not in options_by_name:
        raise option_error("key_file", options_by_name["key_file"], "certificate_file is missing")
    try:
        login = ConnectionLogin(**options_by_name).with_current_password()
        login.ssl_context()
    except ClientError as error:
        raise OptionError(f"options {', '.join(options_by_name)}: {error}") from None
    return login


def _suggestion(name: str, uses: Sequence[AccessMode]) -> str:
    known = sorted(option for option, (its_uses, _) in _OPTIONS.items() if its_uses & set(uses))
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"


def _text(name: str, text: str) -> str:
    if not text.strip():
        raise option_error(name, text, "it is empty")
    return text


def _uris(name: str, text: str) -> tuple[ServerUri, ...]:
    try:
        uris = tuple(map(parse_uri, several(text)))
    except ClientError as error:
        raise OptionError(f"option {name}: {error}") from None
    if len({uri.message_type for uri in uris}) > 1:
        shown = ",".join(map(str, uris))
        raise option_error(name, shown, "expected the same message type for all servers")
    return uris


def _count(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) < 1:
        raise option_error(name, text, "expected a whole number from 1")
    if int(text) > _MAX_COUNT:
        raise option_error(name, text, f"expected a whole number from 1 to {_MAX_COUNT}")
    return int(text)


def _version(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) > MAX_VERSION:
        raise option_error(name, text, f"expected a whole number from 0 to {MAX_VERSION}")
    return int(text)


def _truth(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise option_error(name, text, "expected true or false")
    return text.lower() == "true"


def _seconds(name: str, text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e6:
        raise option_error(name, text, "expected seconds, such as 30")
    return seconds


def _moment(name: str, text: str) -> str:
    """Return a time as a bookmark; one without an offset is in UTC, as in messages."""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        problem = "expected a time, such as 2026-01-02T12:35:00Z, or a date"
        raise option_error(_AS_OF[name], text, problem) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment.astimezone(UTC).strftime("%Y%m%dT%H%M%S.%fZ")


def _message_bookmark(name: str, text: str) -> str:
    if not _BOOKMARK.fullmatch(text.strip()):
        problem = "expected the bookmark of a message, such as 13948331409633280000|7|"
        raise option_error(_AS_OF[name], text, problem)
    return text.strip()


def _one_of(choices: tuple[str, ...]) -> Callable[[str, str], str]:
    def read(name: str, text: str) -> str:
        if text.lower() not in choices:
            *others, last = choices
            raise option_error(name, text, f"expected {', '.join(others)} or {last}")
        return text.lower()

    return read


_OPTIONS: Final[Mapping[str, tuple[frozenset[str], Callable[[str, str], Any]]]] = {
    "server": (_ALL, _uris),
    **dict.fromkeys(_LOGIN, (_ALL, _text)),
    "topic": (_ALL, _text),
    "filter": (_READS, _text),
    "orderby": (frozenset({"read"}), _text),
    "top_n": (frozenset({"read"}), _count),
    "bookmark": (_READS, _text),
    "timestampasof": (frozenset({"read"}), _moment),
    "versionasof": (frozenset({"read"}), _message_bookmark),
    "options": (_READS, _text),
    "batch_size": (frozenset({"read"}), _count),
    "client_name": (_ALL, _text),
    "command": (_WRITES, _one_of(COMMANDS)),
    "partitions": (_READS, _count),
    "partition_by": (frozenset({"read"}), _one_of(PARTITIONED_BY)),
    OPTION: (frozenset({"read"}), lambda _, text: tuple(read_filters(text))),
    "prune": (_READS, _one_of(PRUNES)),
    "sample": (_READS, _count),
    "max_rows_per_trigger": (frozenset({"readStream"}), _count),
    "max_bytes_per_trigger": (frozenset({"readStream"}), _count),
    "min_rows_per_trigger": (frozenset({"readStream"}), _count),
    "max_trigger_delay": (frozenset({"readStream"}), _seconds),
    "fail_on_data_loss": (frozenset({"readStream"}), _truth),
    "commands": (frozenset({"readStream"}), _one_of(FOLLOWED)),
    "consume": (frozenset({"readStream"}), _truth),
    "exactly_once": (_WRITES, _truth),
    "write_id": (frozenset({"write"}), _text),
    "write_version": (frozenset({"write"}), _version),
    "order": (_WRITES, _one_of(ORDERS)),
    "timeout": (_ALL, _seconds),
    **dict.fromkeys(tolerance.NAMES, (_READS, _text)),
}
"""The uses of each option, and the parser of its text."""
