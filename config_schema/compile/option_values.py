"""The values of module options: one check per kind of value.

Values of action modules may hold context variables, `{{NAME}}`, which are known only when the
action runs. Such a value is not checked, except for filters and conditions; their errors are
only warnings then, since the expanded text may be valid.
"""

import re
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from config_schema.catalogue import ExpressionKind, OptionRule, ValueKind
from config_schema.compile.reader import PERCENTAGE, ElementReader, did_you_mean
from config_schema.compile.scope import Scope, SowDefinition
from config_schema.regex import regex_error
from config_schema.spec import TopicRef
from config_schema.units import UnitError, parse_bool, parse_count, parse_interval, quoted

VARIABLE: Final = re.compile(r"\{\{\s*([^{}]*?)\s*\}\}")

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESOURCE: Final = re.compile(r"[^\s/?#]+")
_MAY_BE_EMPTY: Final = (
    ValueKind.TEXT,
    ValueKind.ARGUMENTS,
    ValueKind.BODY,
    ValueKind.SUBSCRIBE_OPTIONS,
    ValueKind.SOW_OPTIONS,
)
_RESERVED_SIGNALS: Final = {
    "SIGQUIT": "it is reserved for writing minidumps",
    "SIGKILL": "no process can react to it",
    "SIGSTOP": "no process can react to it",
}


@dataclass(frozen=True, slots=True)
class OptionValue:
    """An option as written, its rule, and the context for the check of its value.

    `message_type` is the value of the MessageType option beside it, "" without one.
    """

    option: ElementReader
    rule: OptionRule
    scope: Scope
    message_type: str

    @property
    def text(self) -> str:
        """The value."""
        return self.option.value

    def refuse(self, what: str, hint: str | None = None) -> None:
        """Report that the value is not `what`, a text that ends with the expected form."""
        self.option.error(f"{quoted(self.text)} is not {what}", hint)


def check_value(given: OptionValue) -> None:
    """Check the value of one option."""
    if not given.text:
        if given.rule.required or given.rule.value not in _MAY_BE_EMPTY:
            given.option.error(f"is empty: expected {given.rule.help}")
    elif given.rule.check is not None:
        problem = given.rule.check(given.text)
        if problem is not None:
            given.option.error(problem)
    elif given.rule.value in _EXPRESSIONS:
        _check_expression(given.option, _EXPRESSIONS[given.rule.value])
    elif VARIABLE.search(given.text) is None:
        check = _CHECKS.get(given.rule.value)
        if check is not None:
            check(given)


def _check_expression(option: ElementReader, kind: ExpressionKind) -> None:
    if VARIABLE.search(option.value) is None:
        option.checked_expression(kind)
        return
    error = option.catalogue.check_expression(option.value, kind)
    if error is not None:
        option.warning(f"may not parse once its variables are filled in: {error}")


def _parsed_by(parse: Callable[[str], object]) -> Callable[[OptionValue], None]:
    def check_quantity(given: OptionValue) -> None:
        try:
            parse(given.text)
        except UnitError as error:
            given.option.error(str(error))

    return check_quantity


def _check_percentage(given: OptionValue) -> None:
    try:
        if PERCENTAGE(given.text) > 100:  # no figure exceeds 100%
            given.refuse("a percentage: expected 0% to 100%")
    except UnitError as error:
        given.option.error(str(error))


def _check_choice(given: OptionValue) -> None:
    _check_words(given, [given.text])


def _check_choices(given: OptionValue) -> None:
    _check_words(given, [word.strip() for word in given.text.split(",")])


def _check_words(given: OptionValue, words: Sequence[str]) -> None:
    choices = given.rule.choices
    for word in words:
        if word.lower() not in choices:
            given.option.error(
                f"{quoted(word)} is not accepted: expected {', '.join(choices)}",
                did_you_mean(word, choices),
            )


def _check_signal(given: OptionValue) -> None:
    name = given.text.upper()
    names = [known.name for known in signal.Signals]
    if name not in names:
        given.refuse(
            "the name of a signal: expected one such as SIGUSR1", did_you_mean(name, names)
        )
    elif name in _RESERVED_SIGNALS:
        given.option.error(f"no action can be set for {name}: {_RESERVED_SIGNALS[name]}")


def _check_every(given: OptionValue) -> None:
    catalogue = given.option.catalogue
    error = catalogue.check_schedule(given.text, "Every")
    if error is not None:
        crontab = catalogue.check_schedule(given.text, "Crontab") is None
        given.option.error(
            error, "a schedule of five fields goes into Crontab" if crontab else None
        )


def _check_crontab(given: OptionValue) -> None:
    catalogue = given.option.catalogue
    error = catalogue.check_schedule(given.text, "Crontab")
    if error is not None:
        every = catalogue.check_schedule(given.text, "Every") is None
        given.option.error(error, "this form of schedule goes into Every" if every else None)


def _command_options(command: Literal["subscribe", "sow"]) -> Callable[[OptionValue], None]:
    def check_options(given: OptionValue) -> None:
        error = given.option.catalogue.check_command_options(given.text, command)
        if error is not None:
            given.option.error(error)

    return check_options


def _check_name(given: OptionValue) -> None:
    if _NAME.fullmatch(given.text) is None:
        given.refuse(
            "the name of a variable: expected letters, digits and underscores, without the braces"
        )


def _check_assignment(given: OptionValue) -> None:
    name, equals, expression = given.text.partition("=")
    if not equals or _NAME.fullmatch(name.strip()) is None or not expression.strip():
        given.refuse("an assignment: expected variable=expression, such as PRICE=/price")
        return
    error = given.option.catalogue.check_expression(expression.strip(), ExpressionKind.VALUE)
    if error is not None:
        given.option.error(error)


def _check_translation(given: OptionValue) -> None:
    if "=" not in given.text:
        given.refuse("a case: expected original=translated")


def _check_regex(given: OptionValue) -> None:
    given.option.checked_pattern()


def _check_topic_pattern(given: OptionValue) -> None:
    if given.scope.is_pattern(given.text):
        given.option.checked_pattern()


def _check_message_type(given: OptionValue) -> None:
    given.scope.check_message_type(given.option, given.text)


def _check_transport(given: OptionValue) -> None:
    names = list(given.scope.transports)
    if given.text not in names:
        given.option.error(
            f"there is no transport named {quoted(given.text)}",
            did_you_mean(given.text, names)
            or (
                f"the transports are {', '.join(names)}"
                if names
                else "there is no transport at all"
            ),
        )


def _check_stored(given: OptionValue) -> None:
    _require_stored(given, given.scope.stored.values(), "topic")


def _check_queue(given: OptionValue) -> None:
    queues = [topic for topic in given.scope.stored.values() if topic.kind.endswith("Queue")]
    _require_stored(given, queues, "queue")


def _check_records(given: OptionValue) -> None:
    if not _report_queue(given):
        _require_stored(given, given.scope.stored.values(), "topic, view or conflated topic")


def _check_record_pattern(given: OptionValue) -> None:
    if not _report_queue(given):
        _check_stored_pattern(given)


def _report_queue(given: OptionValue) -> bool:
    queue = _named_queue(given)
    if queue is not None:
        given.option.error(
            f"{queue.ref} is a queue, in which every message is a record of its own",
            "expected a topic, view or conflated topic",
        )
    return queue is not None


def _check_published(given: OptionValue) -> None:
    queue = _named_queue(given)
    if queue is not None:
        given.option.warning(
            f"{queue.ref} is a queue: the action would lease its messages and never return them",
            "watch its underlying topic",
        )
    _check_topic_pattern(given)


def _named_queue(given: OptionValue) -> SowDefinition | None:
    stored = given.scope.find_stored(TopicRef(given.text, given.message_type))
    return stored if stored is not None and stored.kind.endswith("Queue") else None


def _require_stored(given: OptionValue, candidates: Iterable[SowDefinition], what: str) -> None:
    if given.message_type not in given.scope.message_types:
        return
    typed = [topic for topic in candidates if topic.ref.message_type == given.message_type]
    if not any(topic.covers(given.text) for topic in typed):
        given.option.error(
            f"no {what} {TopicRef(given.text, given.message_type)} is defined in SOW",
            did_you_mean(given.text, [topic.ref.name for topic in typed]),
        )


def _check_stored_pattern(given: OptionValue) -> None:
    if given.scope.is_pattern(given.text) and regex_error(given.text) is not None:
        given.option.checked_pattern()
    elif given.message_type in given.scope.message_types and not any(
        given.scope.find_selected(given.text, given.message_type)
    ):
        given.option.warning(
            f"{quoted(given.text)} selects no topic of type {quoted(given.message_type)} in SOW",
            did_you_mean(given.text, [ref.name for ref in given.scope.stored]),
        )


def _check_resource(given: OptionValue) -> None:
    if _RESOURCE.fullmatch(given.text) is None:
        given.refuse(
            "the name of a resource: expected one part of a path, without slashes and blanks"
        )


def _check_topic_translation(given: OptionValue) -> None:
    original, _, translated = given.text.rpartition(":")
    if original and translated:
        _check_original(given, original)
    else:
        given.refuse("a translation: expected original:translated")


def _check_conflated_translation(given: OptionValue) -> None:
    parts = given.text.rsplit(":", 2)
    if len(parts) < 3 or not all(parts):
        given.refuse("a translation: expected original:translated:interval")
        return
    _check_original(given, parts[0])
    try:
        parse_interval(parts[2])
    except UnitError as error:
        given.option.error(str(error))


def _check_original(given: OptionValue, original: str) -> None:
    error = regex_error(original)
    if error is not None:
        given.option.error(f"{quoted(original)} is not a regular expression: {error}")


_EXPRESSIONS: Final[Mapping[ValueKind, ExpressionKind]] = {
    ValueKind.FILTER: ExpressionKind.FILTER,
    ValueKind.CONDITION: ExpressionKind.CONDITION,
    ValueKind.ORDER_BY: ExpressionKind.ORDER_BY,
    ValueKind.PATH: ExpressionKind.PATH,
}
"""Kinds of values that are expressions."""

_CHECKS: Final[Mapping[ValueKind, Callable[[OptionValue], None]]] = {
    ValueKind.INTERVAL: _parsed_by(parse_interval),
    ValueKind.COUNT: _parsed_by(parse_count),
    ValueKind.BOOLEAN: _parsed_by(parse_bool),
    ValueKind.PERCENTAGE: _check_percentage,
    ValueKind.CHOICE: _check_choice,
    ValueKind.CHOICES: _check_choices,
    ValueKind.SIGNAL: _check_signal,
    ValueKind.EVERY: _check_every,
    ValueKind.CRONTAB: _check_crontab,
    ValueKind.NAME: _check_name,
    ValueKind.ASSIGNMENT: _check_assignment,
    ValueKind.TRANSLATION: _check_translation,
    ValueKind.REGEX: _check_regex,
    ValueKind.MESSAGE_TYPE: _check_message_type,
    ValueKind.TRANSPORT: _check_transport,
    ValueKind.TOPIC_PATTERN: _check_topic_pattern,
    ValueKind.PUBLISHED_TOPIC_PATTERN: _check_published,
    ValueKind.RECORD_TOPIC: _check_records,
    ValueKind.RECORD_TOPIC_PATTERN: _check_record_pattern,
    ValueKind.STORED_TOPIC: _check_stored,
    ValueKind.STORED_TOPIC_PATTERN: _check_stored_pattern,
    ValueKind.QUEUE_TOPIC: _check_queue,
    ValueKind.RESOURCE: _check_resource,
    ValueKind.SUBSCRIBE_OPTIONS: _command_options("subscribe"),
    ValueKind.SOW_OPTIONS: _command_options("sow"),
    ValueKind.TOPIC_TRANSLATION: _check_topic_translation,
    ValueKind.CONFLATED_TRANSLATION: _check_conflated_translation,
}
"""The checks of other values; the kinds that are left out accept any text."""
