"""The commands of spark and their options: one table, from which parsing and help are made.

An option is a word with one dash. Switches may be followed by a boolean word (`-secure 1`), and
are on when they are not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

import msgspec

from amperage.client.uri import PROTOCOLS


class UsageError(Exception):
    """The command line is invalid; the message has the reason."""


class SparkSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The parsed command line. The fields in use depend on the command."""

    server: str
    topic: str = ""
    ack: bool = False
    authenticator: str | None = None
    backlog: int | None = None
    batchsize: int | None = None
    cafile: str | None = None
    certificate: str | None = None
    copy: str | None = None
    delimiter: int = 10
    delta: bool = False
    file: str | None = None
    filter: str | None = None
    format: str | None = None
    json: bool = False
    key: str | None = None
    orderby: str | None = None
    passwordcmd: str | None = None
    passwordenv: str | None = None
    passwordfile: str | None = None
    proto: str = "amps"
    rate: float | None = None
    secure: bool = False
    topn: int | None = None
    type: str | None = None
    uriopts: str | None = None
    urischeme: str | None = None


_TRUTH: Final = {
    "true": True,
    "1": True,
    "yes": True,
    "false": False,
    "0": False,
    "no": False,
}


def _text(text: str) -> str:
    return text


def _count(text: str) -> int:
    if not text.isdecimal():
        raise ValueError("expected a whole number, such as 10")
    return int(text)


def _at_least_one(text: str) -> int:
    if _count(text) < 1:
        raise ValueError("expected a number from 1 up")
    return int(text)


def _byte(text: str) -> int:
    if _count(text) > 255:
        raise ValueError("expected the decimal value of one byte, 0 to 255")
    return int(text)


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0 < rate < float("inf"):
        raise ValueError("expected messages a second, such as 1000 or .25")
    return rate


def _protocol(text: str) -> str:
    protocol = "amps" if text == "json" else text
    if protocol not in PROTOCOLS:
        raise ValueError(f"expected one of {', '.join(PROTOCOLS)}")
    return protocol


@dataclass(frozen=True, slots=True)
class SparkOption:
    """An option.

    Attributes:
        help: its description, as lines of the help screen.
        parse: parses its value and raises ValueError with the expected form; None for a switch.
    """

    help: tuple[str, ...]
    parse: Callable[[str], object] | None = _text


OPTIONS: Final[Mapping[str, SparkOption]] = {
    "ack": SparkOption(("acknowledge each message of a queue when it is printed",), None),
    "authenticator": SparkOption(
        (
            "where credentials come from, as a Python path",
            "module:factory (default: those of -server)",
        )
    ),
    "backlog": SparkOption(
        ("messages of a queue to take before they are", "acknowledged (max_backlog)"),
        _at_least_one,
    ),
    "batchsize": SparkOption(("records the server sends at a time (default: 10)",), _at_least_one),
    "cafile": SparkOption(
        ("file with the certificates to trust (default: the", "system's; PEM format)")
    ),
    "certificate": SparkOption(("file with the certificate to show to the server",)),
    "copy": SparkOption(("second server, to which each message is published",)),
    "delimiter": SparkOption(
        ("byte that ends a message, as a decimal number", "(default: 10, a line feed)"), _byte
    ),
    "delta": SparkOption(("send or ask for changes instead of whole messages",), None),
    "file": SparkOption(("file to read messages from, plain or zip", "(default: standard input)")),
    "filter": SparkOption(("content filter",)),
    "format": SparkOption(
        (
            "how to print a message: text with the tags",
            "{bookmark} {command} {correlation_id} {data}",
            "{expiration} {lease_period} {length} {sowkey}",
            "{user_id} {timestamp} {topic}",
            "(default: {data})",
        )
    ),
    "json": SparkOption(
        ("print each message as a JSON object, with its header", "(--json is a synonym)"), None
    ),
    "key": SparkOption(("file with the key of -certificate, if not in the same",)),
    "orderby": SparkOption(("what to sort the records by, such as '/price DESC'",)),
    "passwordcmd": SparkOption(
        (
            "command that writes the password or a token; no shell",
            "runs it, and AMPS_USER_NAME of its environment is",
            "the user",
        )
    ),
    "passwordenv": SparkOption(("environment variable that has the password or a token",)),
    "passwordfile": SparkOption(("file that has the password or a token",)),
    "proto": SparkOption(
        (
            "protocol of the transport: amps (also json), or for",
            "old ones fix, nvfix, xml or soap, each with the",
            "separators it has by default (default: amps;",
            "-prot is a synonym)",
        ),
        _protocol,
    ),
    "rate": SparkOption(
        (
            "messages to publish a second; .5 is one message",
            "in 2 seconds (default: as fast as possible)",
        ),
        _rate,
    ),
    "secure": SparkOption(("connect with TLS: true or false (default: false)",), None),
    "server": SparkOption(
        (
            "AMPS server: host:port or user:password@host:port;",
            "several with commas between: the first that can",
            "be reached, and another one when that is gone",
        )
    ),
    "topic": SparkOption(("topic of the messages",)),
    "topn": SparkOption(("return this many records at most",), _count),
    "type": SparkOption(
        ("message type, such as json; needed where the", "transport accepts more than one")
    ),
    "uriopts": SparkOption(
        ("connection parameters, such as tcp_nodelay=true", "or compression=zlib")
    ),
    "urischeme": SparkOption(
        (
            "URI scheme: tcp, tcps, ws, wss, or unix, where",
            "-server is the path of a socket; it overrides -secure",
        )
    ),
}

_SYNONYMS: Final = {"prot": "proto", "-json": "json"}
_CONNECTION: Final = (
    "authenticator",
    "cafile",
    "certificate",
    "key",
    "passwordcmd",
    "passwordenv",
    "passwordfile",
    "proto",
    "secure",
    "type",
    "uriopts",
    "urischeme",
)


@dataclass(frozen=True, slots=True)
class Command:
    """A command.

    Attributes:
        required: options that must be given.
        optional: options that may be given, in the order of the help screen.
        example: a command line.
        explanation: the effect of the example, as lines.
    """

    required: tuple[str, ...]
    optional: tuple[str, ...]
    example: str
    explanation: tuple[str, ...]


def _command(
    required: tuple[str, ...], optional: tuple[str, ...], example: str, *explanation: str
) -> Command:
    return Command(required, tuple(sorted((*_CONNECTION, *optional))), example, explanation)


COMMANDS: Final[Mapping[str, Command]] = {
    "ping": _command(
        ("server",),
        (),
        "spark ping -server localhost:9007 -type json",
        "Connects to the server on port 9007, logs on, and says whether that worked.",
    ),
    "publish": _command(
        ("server", "topic"),
        ("delimiter", "delta", "file", "rate"),
        "spark publish -server localhost:9007 -type json -topic orders -file orders.json",
        "Publishes each line of the file 'orders.json' as a message to the topic 'orders'.",
    ),
    "redrive": _command(
        ("server", "topic"),
        ("filter",),
        "spark redrive -server localhost:9007 -type json -topic failed_jobs -filter '/id = 1'",
        "Brings the dead letters in the queue 'failed_jobs' whose id is 1 back into the queues",
        "that they came from. Without a filter, all that can go back.",
    ),
    "sow": _command(
        ("server", "topic"),
        ("batchsize", "copy", "filter", "format", "json", "orderby", "topn"),
        "spark sow -server localhost:9007 -type json -topic orders -filter '/qty > 5'",
        "Prints the records of the SOW topic 'orders' whose quantity is over 5.",
    ),
    "sow_and_subscribe": _command(
        ("server", "topic"),
        ("batchsize", "copy", "delta", "filter", "format", "json", "orderby", "topn"),
        "spark sow_and_subscribe -server localhost:9007 -type json -topic orders",
        "Prints the records of the SOW topic 'orders', then every update as it is published.",
    ),
    "sow_delete": _command(
        ("server", "topic"),
        ("delimiter", "file", "filter"),
        "spark sow_delete -server localhost:9007 -type json -topic orders -filter '/id = 1'",
        "Deletes the records of the SOW topic 'orders' whose id is 1. Without a filter,",
        "deletes the records that the messages of the file or standard input would update.",
    ),
    "subscribe": _command(
        ("server", "topic"),
        ("ack", "backlog", "copy", "delta", "filter", "format", "json"),
        "spark subscribe -server localhost:9007 -type json -topic orders",
        "Prints each message that is published to the topic 'orders' from now on.",
    ),
}


def parse(command_name: str, arguments: Sequence[str]) -> SparkSettings:
    """Parse the options of a command.

    Args:
        command_name: one of `COMMANDS`.
        arguments: the words after the command.

    Raises:
        UsageError: an option is unknown, has no value or a wrong one, or is missing.
    """
    command = COMMANDS[command_name]
    names = (*command.required, *command.optional)
    values: dict[str, object] = {}
    remaining = list(reversed(arguments))
    while remaining:
        name = _option_name(remaining.pop(), names)
        values[name] = _option_value(name, remaining)
    for name in command.required:
        if not values.get(name):
            raise UsageError(f"-{name} is missing ({OPTIONS[name].help[0]})")
    return msgspec.convert(values, SparkSettings)


def _option_name(argument: str, names: Sequence[str]) -> str:
    name = argument[1:]
    name = _SYNONYMS.get(name, name)
    if argument.startswith("-") and name in names:
        return name
    if not argument.startswith(("-", "\u2013")):  # an en dash comes from pasted documentation
        raise UsageError(f"unexpected {argument!r}; every option has a name, such as -{names[0]}")
    bare = name.lstrip("-\u2013")
    close = get_close_matches(_SYNONYMS.get(bare, bare), names, n=1)
    hint = f"did you mean -{close[0]}?" if close else f"known are -{', -'.join(sorted(names))}"
    raise UsageError(f"unknown option {argument}; {hint}")


def _option_value(name: str, remaining: list[str]) -> object:
    """Remove the value of an option from the remaining words, and return it parsed."""
    read = OPTIONS[name].parse
    if read is None:
        return (
            _TRUTH[remaining.pop().lower()]
            if remaining and remaining[-1].lower() in _TRUTH
            else True
        )
    if not remaining:
        raise UsageError(f"-{name} has no value ({OPTIONS[name].help[0]})")
    text = remaining.pop()
    try:
        return read(text)
    except ValueError as error:
        raise UsageError(f"-{name} is {text!r}: {error}") from None
