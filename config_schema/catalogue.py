"""What the compiler must be told about the program that will run the configuration.

The configuration names modules, functions and features whose code lives above this package. The
program passes a `Catalogue`: which modules it offers with which options, how expressions are
checked, and what it does not do yet. Rules are data, so that verification, the sample
configurations and the reference of the options read the same tables.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Final, Literal, Protocol

from config_schema.spec import FunctionSpec, ModuleSpec, Options

DEFAULT_VARIABLES: Final = ("AMPS_INSTANCE_NAME", "AMPS_DATETIME", "AMPS_UNIX_TIMESTAMP")
"""Variables that every action finds set; AMPS_BYTE_00 to AMPS_BYTE_FF stand for single bytes."""


class ExpressionKind(StrEnum):
    """The places that take expressions; the place decides what may stand in one."""

    FILTER = "filter"
    """Subscriptions, queries, deletes, entitlements, actions."""
    STABLE_FILTER = "stable filter"
    """Filters that must answer the same whenever they are asked: subscriptions with oof,
    aggregation or pagination, queues and their barriers, conflated topics, replication."""
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
    """What a module can be used as."""

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
    """What the value of a module's option is, and so how it is checked."""

    TEXT = "text"
    """What is compared, written or kept as it is; a text with a syntax of its own has a kind."""
    FILE = "path"
    FILE_PATTERN = "shell pattern of files"
    COMMAND = "shell command"
    ARGUMENTS = "arguments of a command"
    BODY = "message"
    """Of the message type that the option MessageType beside it names."""
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
    """Checked when all topics are known."""


@dataclass(frozen=True, slots=True)
class OptionRule:
    """One option of a module.

    Attributes:
        name: the element inside Options.
        value: what its text is.
        help: one line for the person who writes it.
        required: whether the module cannot do without it.
        repeatable: whether it may be given several times.
        default: its text when it is not given; None where there is no such text.
        choices: the values of CHOICE and CHOICES.
        absence: what follows from leaving it out, where that deserves a warning.
        check: says what is wrong with a text, or None, in place of what `value` would find.
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


@dataclass(frozen=True, slots=True)
class OptionProblem:
    """What is wrong with options that are right by themselves.

    Attributes:
        option: the option that is at fault.
        text: what is wrong.
        hint: what to do about it.
        is_warning: whether the instance can start all the same.
    """

    option: str
    text: str
    hint: str | None = None
    is_warning: bool = False


@dataclass(frozen=True, slots=True)
class AtLeast:
    """A number of options that must be given together, whichever of these they are."""

    count: int
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ModuleRule:
    """One module: its name, what it is told, and what it gives to the steps after it.

    Attributes:
        name: the name, as Module elements give it.
        help: one line on what it does.
        options: the options it takes; any other is a mistake, unless `open_options`.
        one_of: groups of options of which exactly one must be given.
        together: groups of options of which all must be given, or none.
        at_least: how many of some options must be given.
        exports: the context variables that it sets, for action modules.
        exports_named_by: options whose value is the name of a variable that it sets.
        open_context: whether it may set variables that cannot be known beforehand.
        open_options: whether options besides the listed ones pass unchecked.
        needs: the place in the configuration that must be there for it to have any effect.
        library: the library that brings it, and has to be loaded; empty for none.
        check: says what is wrong with the options together: those that are given, and those that
            the module has been loaded with, which count where they are not given.
    """

    name: str
    help: str
    options: tuple[OptionRule, ...] = ()
    one_of: tuple[tuple[str, ...], ...] = ()
    together: tuple[tuple[str, ...], ...] = ()
    at_least: tuple[AtLeast, ...] = ()
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
        name: what it is called in messages.
        uses: what modules loaded from it can be used for.
        options: the options of loading.
        open_options: whether options of loading besides the listed ones pass unchecked.
        entry_points: the function that it must define for a use.
        symbols: the functions that it defines; None where that shows only when it is loaded.
    """

    name: str
    uses: Mapping[ModuleKind, ModuleRule]
    options: tuple[OptionRule, ...] = ()
    open_options: bool = False
    entry_points: Mapping[ModuleKind, str] = field(default_factory=dict)
    symbols: frozenset[str] | None = None

    def lacks(self, symbol: str) -> bool:
        """Whether the library is known not to define a function."""
        return self.symbols is not None and symbol not in self.symbols


class Catalogue(Protocol):
    """What the running program offers to a configuration."""

    @property
    def libraries(self) -> Mapping[str, LibraryRule]:
        """The loadable libraries available here, by base name such as "libamps_x.so"."""

    def examine_library(self, library: str) -> "LibraryRule | str":
        """Return the rule of a library that does not come with AMPS, or why it cannot be loaded."""

    def with_functions(
        self, functions: Sequence[FunctionSpec], modules: Sequence[ModuleSpec]
    ) -> "Catalogue":
        """Return a catalogue whose expressions may call more functions.

        Args:
            functions: those that the configuration declares.
            modules: the modules that it loads, which may bring functions as well.
        """

    def check_function_name(self, name: str) -> str | None:
        """Return None if expressions can call a function by this name, else what is wrong."""

    def modules(self, kind: ModuleKind) -> Mapping[str, ModuleRule]:
        """Return the modules that need no loading, by name."""

    def check_expression(self, text: str, kind: ExpressionKind) -> str | None:
        """Return None if `text` is a good expression of this kind, else what is wrong and where.

        The answer is one line. `{{NAME}}` is a context variable, whose value is not known yet.
        """

    def check_schedule(self, text: str, form: Literal["Every", "Crontab"]) -> str | None:
        """Return None if `text` is a schedule of this form, else what is wrong and was expected."""

    def check_command_options(self, text: str, command: Literal["subscribe", "sow"]) -> str | None:
        """Return None if a command can have these options, else what is wrong and was expected."""
