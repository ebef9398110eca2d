"""The interface through which the compiler asks about the program that runs the configuration.

The configuration names modules, functions and features with code above this package. The
program passes a `Catalogue`: its modules with their options, its checks of expressions, and the
features that it does not have yet. Rules are data, so that verification, the sample
configurations and the reference of the options read the same tables.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Final, Literal, Protocol

from config_schema.spec import FunctionSpec, ModuleSpec, Options

DEFAULT_VARIABLES: Final = ("AMPS_INSTANCE_NAME", "AMPS_DATETIME", "AMPS_UNIX_TIMESTAMP")
"""Variables set for every action; AMPS_BYTE_00 to AMPS_BYTE_FF stand for single bytes."""


class ExpressionKind(StrEnum):
    """The places that take expressions; the place decides which syntax is legal."""

    FILTER = "filter"
    """Subscriptions, queries, deletes, entitlements, actions."""
    STABLE_FILTER = "stable filter"
    """Filters with a result for a message that must not change over time: subscriptions with oof,
    aggregation or pagination, queues and their barriers, conflated topics, replication.
    """
    VIEW_FILTER = "view filter"
    CONDITION = "condition"
    VALUE = "value"
    """A single value, such as a queue's Priority."""
    PATH = "path"
    """One field of one message: SOW keys, hash indexes, memo indexes."""
    GROUPING = "grouping"
    PROJECTION = "projection"
    PREPROCESSING = "preprocessing"
    ENRICHMENT = "enrichment"
    CONFLATED_ENRICHMENT = "conflated topic enrichment"
    ORDER_BY = "order by"
    JOIN = "join"


class ModuleKind(Enum):
    """The uses of a module."""

    ON = "On"
    DO = "Do"
    IF = "If"
    AUTHENTICATION = "Authentication"
    ENTITLEMENT = "Entitlement"
    AUTHENTICATOR = "Authenticator"
    TRANSPORT_FILTER = "TransportFilter"
    KEY_GENERATOR = "KeyGenerator"
    PROTOCOL = "Protocol"
    MESSAGE_TYPE = "MessageType"
    FUNCTIONS = "Function"


class ValueKind(Enum):
    """The kinds of values of module options; the kind decides how a value is checked."""

    TEXT = "text"
    """A text that is compared, written or kept verbatim; a text with a syntax has its own kind."""
    FILE = "path"
    FILE_PATTERN = "shell pattern of files"
    COMMAND = "shell command"
    ARGUMENTS = "arguments of a command"
    BODY = "message"
    """Of the message type that the option MessageType of the same module names."""
    INTERVAL = "interval"
    COUNT = "whole number"
    BOOLEAN = "true or false"
    PERCENTAGE = "percentage"
    CHOICE = "one of the choices"
    CHOICES = "comma-separated choices"
    SIGNAL = "name of a Linux signal"
    EVERY = "schedule"
    CRONTAB = "crontab expression"
    NAME = "name of a context variable"
    ASSIGNMENT = "variable=expression"
    TRANSLATION = "original=translated"
    FILTER = "filter"
    CONDITION = "condition"
    ORDER_BY = "order"
    PATH = "path of a field"
    REGEX = "regular expression"
    MESSAGE_TYPE = "message type"
    TRANSPORT = "name of a transport"
    TOPIC = "topic"
    TOPIC_PATTERN = "topic or regular expression"
    PUBLISHED_TOPIC_PATTERN = "topic that is published to, or regular expression"
    RECORD_TOPIC = "topic, view or conflated topic"
    RECORD_TOPIC_PATTERN = "topic, view or conflated topic, or regular expression"
    STORED_TOPIC = "topic of the SOW section"
    STORED_TOPIC_PATTERN = "topic of the SOW section or regular expression"
    QUEUE_TOPIC = "queue"
    RESOURCE = "name of a resource"
    SUBSCRIBE_OPTIONS = "options of subscribe"
    SOW_OPTIONS = "options of sow"
    TOPIC_TRANSLATION = "original:translated"
    CONFLATED_TRANSLATION = "original:translated:interval"
    LOOKUP = "name;parameter count;message type;topic;return field;lookup field;..."
    """Checked after all topics are compiled."""


@dataclass(frozen=True, slots=True)
class OptionRule:
    """One option of a module.

    Attributes:
        name: the element inside Options.
        value: the kind of its text.
        help: one line for the author of the configuration.
        required: true if the module cannot work without it.
        repeatable: true if it may be given several times.
        default: its text when it is not given; None if there is no such text.
        choices: the values of CHOICE and CHOICES.
        absence: the consequence of leaving it out, where that deserves a warning.
        check: replaces the check of `value`; returns the error in a text, or None.
        is_fixed: true if a step reads it when the instance starts, without replacing variables.
    """

    name: str
    value: ValueKind
    help: str
    required: bool = False
    repeatable: bool = False
    default: str | None = None
    choices: tuple[str, ...] = ()
    absence: str = ""
    check: Callable[[str], str | None] | None = None
    is_fixed: bool = False


@dataclass(frozen=True, slots=True)
class OptionProblem:
    """A problem of options that are valid one by one.

    Attributes:
        option: the option that causes it.
        text: the problem.
        hint: the remedy.
        is_warning: true if the instance can start nevertheless.
    """

    option: str
    text: str
    hint: str | None = None
    is_warning: bool = False


@dataclass(frozen=True, slots=True)
class MinimumOptions:
    """The minimum number of options that must be given out of a group."""

    count: int
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ModuleRule:
    """One module: its name, its options, and the variables that it sets for later steps.

    Attributes:
        name: the name, as in Module elements.
        help: one line on its function.
        options: the options it takes; any other is an error, unless `open_options`.
        one_of: groups of options of which exactly one must be given.
        together: groups of options of which all must be given, or none.
        at_least: how many of some options must be given.
        exports: the context variables that it sets, for action modules.
        exports_named_by: options with the name of a variable that it sets as their value.
        open_context: true if it may set variables with names that are not known beforehand.
        open_options: true if options besides the listed ones pass unchecked.
        needs: the section of the configuration without which it has no effect.
        library: the library that contains it and has to be loaded; empty for none.
        check: returns the problems of the options together. Takes the given options, and the
            options of loading the module, which apply where an option is not given.
    """

    name: str
    help: str
    options: tuple[OptionRule, ...] = ()
    one_of: tuple[tuple[str, ...], ...] = ()
    together: tuple[tuple[str, ...], ...] = ()
    at_least: tuple[MinimumOptions, ...] = ()
    exports: tuple[str, ...] = ()
    exports_named_by: tuple[str, ...] = ()
    open_context: bool = False
    open_options: bool = False
    needs: str = ""
    library: str = ""
    check: Callable[[Options, Options], Iterable[OptionProblem]] | None = None


@dataclass(frozen=True, slots=True)
class LibraryRule:
    """A loadable library: its uses, and the options of loading.

    Attributes:
        name: its name in messages.
        uses: the possible uses of modules loaded from it, each with its rule.
        options: the options of loading.
        open_options: true if options of loading besides the listed ones pass unchecked.
        entry_points: for each use, the function that the library must define.
        symbols: the functions that it defines; None if that is known only after loading.
    """

    name: str
    uses: Mapping[ModuleKind, ModuleRule]
    options: tuple[OptionRule, ...] = ()
    open_options: bool = False
    entry_points: Mapping[ModuleKind, str] = field(default_factory=dict)
    symbols: frozenset[str] | None = None

    def lacks_symbol(self, symbol: str) -> bool:
        """Return true if the library is known not to define a function."""
        return self.symbols is not None and symbol not in self.symbols


class Catalogue(Protocol):
    """The modules, functions and checks that the running program offers to a configuration."""

    @property
    def libraries(self) -> Mapping[str, LibraryRule]:
        """The loadable libraries available here, by base name such as "libamps_x.so"."""

    def examine_library(self, library: str) -> "LibraryRule | str":
        """Return the rule of a library that does not come with AMPS, or why it cannot be loaded."""

    def with_functions(
        self, functions: Sequence[FunctionSpec], modules: Sequence[ModuleSpec]
    ) -> "Catalogue":
        """Return a catalogue with more functions for expressions to call.

        Args:
            functions: the functions that the configuration declares.
            modules: the modules that it loads, which may contain functions as well.
        """

    def check_function_name(self, name: str) -> str | None:
        """Return None if expressions can call a function by this name, else the error."""

    def modules(self, kind: ModuleKind) -> Mapping[str, ModuleRule]:
        """Return the modules that need no loading, by name."""

    def check_expression(self, text: str, kind: ExpressionKind) -> str | None:
        """Return None if `text` is a valid expression of this kind, else the error and where.

        The error is one line. `{{NAME}}` is a context variable; its value is not known yet.
        """

    def check_schedule(self, text: str, form: Literal["Every", "Crontab"]) -> str | None:
        """Return None if `text` is a schedule of this form, else the error and expected form."""

    def check_command_options(self, text: str, command: Literal["subscribe", "sow"]) -> str | None:
        """Return None if a command accepts these options, else the error and expected form."""
