"""The values of module options: one check per kind of value.

Most values of the steps of actions may hold context variables, `{{NAME}}`, which are known only
when the action runs. Such a value is not checked, except for filters and conditions; their errors
are only warnings then, since the expanded text may be valid. All other modules, also those of `On`,
read their options when the instance starts.
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
_FIXED: Final = (ValueKind.NAME, ValueKind.CHOICE)
"""Kinds of values in which steps replace no variables."""

_RESERVED_SIGNALS: Final = {
    "SIGQUIT": "it is reserved for writing minidumps",
    "SIGKILL": "no process can react to it",
    "SIGSTOP": "no process can react to it",
}


@dataclass(frozen=True, slots=True)
class OptionValue:
    """An option as written, its rule, and the context for the check of its value.

    `message_type` is the value of the MessageType option beside it, "" without one.
    `is_template` is true if variables in the value are replaced when the module runs.
    """

    option: ElementReader
    rule: OptionRule
    scope: Scope
    message_type: str
    is_template: bool

    @property
    def text(self) -> str:
        """The value."""
        return self.option.value

    @property
    def has_variables(self) -> bool:
        """True if variables have to be filled in before the value can be read."""
        is_fixed = self.rule.is_fixed or self.rule.value in _FIXED
        return self.is_template and not is_fixed and VARIABLE.search(self.text) is not None

    def refuse(self, expectation: str, hint: str | None = None) -> None:
        """Report that the value is not `expectation`, a text that ends with the expected form."""
        self.option.error(f"{quoted(self.text)} is not {expectation}", hint)


def check_value(option_value: OptionValue) -> None:
    """Check the value of one option."""
    if not option_value.text:
        if option_value.rule.required or option_value.rule.value not in _MAY_BE_EMPTY:
            option_value.option.error(f"is empty: expected {option_value.rule.help}")
    elif option_value.rule.check is not None:
        problem = option_value.rule.check(option_value.text)
        if problem is not None:
            option_value.option.error(problem)
    elif option_value.rule.value in _EXPRESSIONS:
        _check_expression(option_value, _EXPRESSIONS[option_value.rule.value])
    elif not option_value.has_variables:
        check = _CHECKS.get(option_value.rule.value)
        if check is not None:
            check(option_value)


def _check_expression(option_value: OptionValue, kind: ExpressionKind) -> None:
    option = option_value.option
    variable = VARIABLE.search(option.value)
    if variable is None:
        option.checked_expression(kind)
        return
    if not option_value.is_template:
        option.error(f"{variable[0]} has no value: this option is read when the instance starts")
        return
    error = option.catalogue.check_expression(option.value, kind)
    if error is not None:
        option.warning(f"may not parse once its variables are filled in: {error}")


def _parsed_by(parse: Callable[[str], object]) -> Callable[[OptionValue], None]:
    def check_quantity(option_value: OptionValue) -> None:
        try:
            parse(option_value.text)
        except UnitError as error:
            option_value.option.error(str(error))

    return check_quantity


def _check_percentage(option_value: OptionValue) -> None:
    try:
        if PERCENTAGE(option_value.text) > 100:  # no figure exceeds 100%
            option_value.refuse("a percentage: expected 0% to 100%")
    except UnitError as error:
        option_value.option.error(str(error))


def _check_choice(option_value: OptionValue) -> None:
    _check_words(option_value, [option_value.text])


def _check_choices(option_value: OptionValue) -> None:
    _check_words(option_value, [word.strip() for word in option_value.text.split(",")])


def _check_words(option_value: OptionValue, words: Sequence[str]) -> None:
    choices = option_value.rule.choices
    for word in words:
        if word.lower() not in choices:
            option_value.option.error(
                f"{quoted(word)} is not accepted: expected {', '.join(choices)}",
                did_you_mean(word, choices),
            )


def _check_signal(option_value: OptionValue) -> None:
    name = option_value.text.upper()
    names = [known.name for known in signal.Signals]
    if name not in names:
        option_value.refuse(
            "the name of a signal: expected one such as SIGUSR1", did_you_mean(name, names)
        )
    elif name in _RESERVED_SIGNALS:
        option_value.option.error(f"no action can be set for {name}: {_RESERVED_SIGNALS[name]}")


def _check_every(option_value: OptionValue) -> None:
    catalogue = option_value.option.catalogue
    error = catalogue.check_schedule(option_value.text, "Every")
    if error is not None:
        crontab = catalogue.check_schedule(option_value.text, "Crontab") is None
        option_value.option.error(
            error, "a schedule of five fields goes into Crontab" if crontab else None
        )


def _check_crontab(option_value: OptionValue) -> None:
    catalogue = option_value.option.catalogue
    error = catalogue.check_schedule(option_value.text, "Crontab")
    if error is not None:
        every = catalogue.check_schedule(option_value.text, "Every") is None
        option_value.option.error(error, "this form of schedule goes into Every" if every else None)


def _command_options(command: Literal["subscribe", "sow"]) -> Callable[[OptionValue], None]:
    def check_options(option_value: OptionValue) -> None:
        error = option_value.option.catalogue.check_command_options(option_value.text, command)
        if error is not None:
            option_value.option.error(error)

    return check_options


def _check_name(option_value: OptionValue) -> None:
    if _NAME.fullmatch(option_value.text) is None:
        option_value.refuse(
            "the name of a variable: expected letters, digits and underscores, without the braces"
        )


def _check_assignment(option_value: OptionValue) -> None:
    name, equals, expression = option_value.text.partition("=")
    if not equals or _NAME.fullmatch(name.strip()) is None or not expression.strip():
        option_value.refuse("an assignment: expected variable=expression, such as PRICE=/price")
        return
    error = option_value.option.catalogue.check_expression(expression.strip(), ExpressionKind.VALUE)
    if error is not None:
        option_value.option.error(error)


def _check_translation(option_value: OptionValue) -> None:
    if "=" not in option_value.text:
        option_value.refuse("a case: expected original=translated")


def _check_regex(option_value: OptionValue) -> None:
    option_value.option.checked_pattern()


def _check_topic_pattern(option_value: OptionValue) -> None:
    if option_value.scope.is_pattern(option_value.text):
        option_value.option.checked_pattern()


def _check_message_type(option_value: OptionValue) -> None:
    option_value.scope.check_message_type(option_value.option, option_value.text)


def _check_transport(option_value: OptionValue) -> None:
    names = list(option_value.scope.transports)
    if option_value.text not in names:
        option_value.option.error(
            f"there is no transport named {quoted(option_value.text)}",
            did_you_mean(option_value.text, names)
            or (
                f"the transports are {', '.join(names)}"
                if names
                else "there is no transport at all"
            ),
        )


def _check_stored(option_value: OptionValue) -> None:
    _require_stored(option_value, option_value.scope.stored.values(), "topic")


def _check_queue(option_value: OptionValue) -> None:
    queues = [topic for topic in option_value.scope.stored.values() if topic.kind.endswith("Queue")]
    _require_stored(option_value, queues, "queue")


def _check_records(option_value: OptionValue) -> None:
    if not _report_queue(option_value):
        _require_stored(
            option_value, option_value.scope.stored.values(), "topic, view or conflated topic"
        )


def _check_record_pattern(option_value: OptionValue) -> None:
    if not _report_queue(option_value):
        _check_stored_pattern(option_value)


def _report_queue(option_value: OptionValue) -> bool:
    queue = _named_queue(option_value)
    if queue is not None:
        option_value.option.error(
            f"{queue.ref} is a queue, in which every message is a record of its own",
            "expected a topic, view or conflated topic",
        )
    return queue is not None


def _check_published(option_value: OptionValue) -> None:
    queue = _named_queue(option_value)
    if queue is not None:
        option_value.option.warning(
            f"{queue.ref} is a queue: the action would lease its messages and never return them",
            "watch its underlying topic",
        )
    _check_topic_pattern(option_value)


def _named_queue(option_value: OptionValue) -> SowDefinition | None:
    stored = option_value.scope.find_stored(TopicRef(option_value.text, option_value.message_type))
    return stored if stored is not None and stored.kind.endswith("Queue") else None


def _require_stored(
    option_value: OptionValue, candidates: Iterable[SowDefinition], kind: str
) -> None:
    if option_value.message_type not in option_value.scope.message_types:
        return
    typed = [topic for topic in candidates if topic.ref.message_type == option_value.message_type]
    if not any(topic.covers(option_value.text) for topic in typed):
        option_value.option.error(
            f"no {kind} {TopicRef(option_value.text, option_value.message_type)} is defined in SOW",
            did_you_mean(option_value.text, [topic.ref.name for topic in typed]),
        )


def _check_stored_pattern(option_value: OptionValue) -> None:
    if (
        option_value.scope.is_pattern(option_value.text)
        and regex_error(option_value.text) is not None
    ):
        option_value.option.checked_pattern()
    elif option_value.message_type in option_value.scope.message_types and not any(
        option_value.scope.find_selected(option_value.text, option_value.message_type)
    ):
        option_value.option.warning(
            f"{quoted(option_value.text)} selects no topic of type "
            f"{quoted(option_value.message_type)} in SOW",
            did_you_mean(option_value.text, [ref.name for ref in option_value.scope.stored]),
        )


def _check_resource(option_value: OptionValue) -> None:
    if _RESOURCE.fullmatch(option_value.text) is None:
        option_value.refuse(
            "the name of a resource: expected one part of a path, without slashes and blanks"
        )


def _check_topic_translation(option_value: OptionValue) -> None:
    original, _, translated = option_value.text.rpartition(":")
    if original and translated:
        _check_original(option_value, original)
    else:
        option_value.refuse("a translation: expected original:translated")


def _check_conflated_translation(option_value: OptionValue) -> None:
    parts = option_value.text.rsplit(":", 2)
    if len(parts) < 3 or not all(parts):
        option_value.refuse("a translation: expected original:translated:interval")
        return
    _check_original(option_value, parts[0])
    try:
        parse_interval(parts[2])
    except UnitError as error:
        option_value.option.error(str(error))


def _check_original(option_value: OptionValue, original: str) -> None:
    error = regex_error(original)
    if error is not None:
        option_value.option.error(f"{quoted(original)} is not a regular expression: {error}")


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
