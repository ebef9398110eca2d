"""The checklist: the tasks before, during and after the migration of a configuration from AMPS."""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from config_schema.problems import Problem, Problems, Severity
from config_schema.spec import InstanceSpec
from config_schema.validate import validate
from server.admin.diagnosis.findings import CheckVerdict
from server.app.wiring.foreign_files import OPTION, find_foreign_files
from server.app.wiring.provision import ProvisionError
from server.cli.doctor.configuration import DoctorConfiguration
from server.cli.doctor.findings import VERDICT_LABELS
from server.cli.doctor.migration.survey import ABSENT, FeatureSurvey, MigrationTopic, survey

WHY_NOT: Final = (
    "AMPS's own journals and SOW files are in a format of its own, which is not read here"
)

_OLD: Final = "OLD"
_NEW: Final = "NEW"
_PORT: Final = "PORT"


@dataclass(frozen=True, slots=True)
class ChecklistItem:
    """A task or a point to check.

    Attributes:
        text: the task.
        page: the page that describes it; empty if the text is complete.
        commands: commands that do it.
    """

    text: str
    page: str = ""
    commands: tuple[str, ...] = ()


@dataclass(slots=True)
class Checklist:
    """The checklist of one configuration.

    Attributes:
        path: path of the configuration.
        survey: the features that it uses; empty if it cannot be read.
        errors: problems that keep it from being used.
        warnings: settings that may behave differently than expected.
        files: files of AMPS in this server's places, each with its description.
        no_files_reason: why these could not be looked for; empty if they could.
        data_steps: how to carry data over.
        clients: points to check in client programs.
        steps: from the first start to the last check.
    """

    path: str
    survey: FeatureSurvey = field(default_factory=FeatureSurvey)
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    files: list[tuple[str, str]] = field(default_factory=list)
    no_files_reason: str = ""
    data_steps: list[ChecklistItem] = field(default_factory=list)
    clients: list[ChecklistItem] = field(default_factory=list)
    steps: list[ChecklistItem] = field(default_factory=list)

    @property
    def absent_features(self) -> list[str]:
        """The features and modules that the configuration uses and this server lacks."""
        return [
            *(use.feature.name for use in self.survey.uses.values() if use.state == ABSENT),
            *(module.name for module in self.survey.modules if module.state == ABSENT),
        ]

    @property
    def verdict(self) -> CheckVerdict:
        """`OK` if the configuration runs as it is, with all features that it uses."""
        if self.errors:
            return CheckVerdict.ERROR
        if (
            self.absent_features
            or self.warnings
            or self.files
            or self.no_files_reason
            or self.survey.ignored
        ):
            return CheckVerdict.WARNING
        return CheckVerdict.OK


def make_checklist(configuration: DoctorConfiguration) -> Checklist:
    """Make the checklist of a configuration, in the directory at which its paths begin."""
    checklist = Checklist(configuration.path)
    checklist.errors = _messages(configuration.problems, Severity.ERROR)
    checklist.warnings = _messages(configuration.problems, Severity.WARNING)
    document = configuration.document
    if document is None:
        checklist.no_files_reason = "the configuration cannot be read"
        return checklist
    root = validate(document, Problems())
    checklist.survey = survey(root)
    _find_files(checklist, configuration.partial_spec)
    checklist.data_steps = [*_migration_items(checklist.survey)]
    checklist.clients = [*_clients(checklist.survey)]
    checklist.steps = [*_steps(checklist)]
    return checklist


def as_data(checklist: Checklist) -> dict[str, Any]:
    """Return the checklist as JSON values."""
    features = checklist.survey
    return {
        "configuration": checklist.path,
        "instance": features.name,
        "verdict": VERDICT_LABELS[checklist.verdict],
        "errors": checklist.errors,
        "warnings": checklist.warnings,
        "ignored": [
            {"location": where, "element": path, "reason": reason}
            for where, path, reason in features.ignored
        ],
        "features": [
            {
                "name": use.feature.name,
                "state": use.state,
                "section": use.feature.section or None,
                "count": use.count,
                "first": use.first_location,
            }
            for use in features.uses.values()
        ],
        "modules": [asdict(module) for module in features.modules],
        "files": [{"path": path, "what": description} for path, description in checklist.files],
        "files_unknown": checklist.no_files_reason or None,
        "carry": [asdict(item) for item in checklist.data_steps],
        "clients": [asdict(item) for item in checklist.clients],
        "steps": [asdict(item) for item in checklist.steps],
    }


def _messages(problems: Problems, severity: Severity) -> list[str]:
    selected: list[Problem] = [problem for problem in problems if problem.severity is severity]
    return [str(problem) for problem in selected]


def _find_files(checklist: Checklist, spec: InstanceSpec | None) -> None:
    if spec is None:
        checklist.no_files_reason = "the errors above have to be mended first"
        return
    try:
        checklist.files = [(str(file.path), file.description) for file in find_foreign_files(spec)]
    except ProvisionError as error:
        checklist.no_files_reason = str(error)


def _migration_items(features: FeatureSurvey) -> Iterator[ChecklistItem]:
    """Yield the ways to carry data over: records by topic, the log by a program, or not at all."""
    if features.has("replication", "transports for replication"):
        yield ChecklistItem(
            "AMPS and this server cannot replicate to each other: the protocol between instances is"
            " each one's own. Move all instances that replicate together",
            "docs/compatibility.md, Links between instances",
        )
    for topic in features.records:
        yield _records_item(topic, features)
    if features.has("the transaction log"):
        yield ChecklistItem(
            "The transaction log begins anew. A program that subscribes at AMPS with the bookmark"
            " EPOCH and publishes here carries over what AMPS's log still has; bookmarks and"
            " times are those of the new log",
            "docs/client.md",
        )
    if features.has("queues"):
        yield ChecklistItem(
            "Messages in queues stay behind: stop their publishers, and let the consumers work"
            " off the queues at AMPS before they move"
        )
    if features.has("views", "conflated topics"):
        yield ChecklistItem(
            "Views and conflated topics are made anew from the records at the start"
        )
    if features.has("the statistics database"):
        yield ChecklistItem(
            "A statistics database that AMPS has made is renamed to NAME.foreign-1 by the first"
            " start; amps-sqlite3 reads it",
            "docs/compatibility.md, The statistics database",
        )


def _records_item(topic: MigrationTopic, features: FeatureSurvey) -> ChecklistItem:
    title = f"Records of {topic.name} ({topic.message_type})"
    if not topic.has_keys:
        return ChecklistItem(
            f"{title} have keys that publishers give, which spark does not pass on: have the"
            " publishers publish them again, or write a program that does",
            "docs/client.md",
        )
    copy = f"-copy {_NEW}:{features.port or _PORT}"
    command = (
        f"{_spark('sow_and_subscribe', _OLD, features)} {copy} {_topic_option(topic)} > /dev/null"
    )
    return ChecklistItem(
        f"{title}, and the updates that come as long as this runs; deletions and expirations are"
        " not passed on",
        "",
        (command,),
    )


def _spark(command: str, host: str, features: FeatureSurvey) -> str:
    secure = " -secure true" if features.is_encrypted else ""
    return f"spark {command} -server {host}:{features.port or _PORT}{secure}"


def _topic_option(topic: MigrationTopic) -> str:
    return shlex.join(["-type", topic.message_type, "-topic", topic.pattern or topic.name])


_CLIENT_CHECKS: Final[tuple[tuple[tuple[str, ...], str, str], ...]] = (
    (
        (),
        "What AMPS leaves open in commands: order between connections, limits, reasons of failures",
        "Commands",
    ),
    (
        (),
        "Filters: AND, OR and comparisons with NULL, patterns, LAST_READ() is always NULL",
        "Expressions",
    ),
    (
        ("the transaction log",),
        (
            "Stores of bookmarks and of published messages that clients keep: the log here does not"
            " know AMPS's bookmarks, and numbers of publishers begin anew. Remove them, or start"
            " subscriptions with a moment"
        ),
        "The transaction log",
    ),
    (
        ("topics with records",),
        (
            "Keys of records that the server makes are others than AMPS's: clients that keep them,"
            " or query and delete by them, have to learn the new ones"
        ),
        "The State of the World",
    ),
    (
        ("topics with records", "views", "conflated topics"),
        "Queries, pages, deltas, sow_delete",
        "Queries and subscriptions of records",
    ),
    (("views",), "Aggregates: types of sums, groups, NULL", "Views"),
    (("queues",), "Backlogs, acknowledgements, cancelled messages, order", "Queues"),
    (("websockets",), "Form of messages, origins of pages, the logon", "Transports"),
    (("legacy protocols",), "Lengths, separators, fields", "Legacy protocols"),
    (("TLS",), "Versions: TLS 1.1 is left out unless it is asked for", "Transports"),
    (
        ("the admin interface",),
        "Programs that read /amps: forms of numbers, what counters count",
        "The admin interface",
    ),
    (
        ("logs",),
        "Programs that read the log: names of files, rotation, counts",
        "The server log",
    ),
    (
        (),
        "Scripts with spark: protocols, authenticators, where lines go, exit codes",
        "The client and spark",
    ),
)
"""Features (empty: any configuration), the point to check, and the section that describes it."""


def _clients(surveyed: FeatureSurvey) -> Iterator[ChecklistItem]:
    for features, text, section in _CLIENT_CHECKS:
        if not features or surveyed.has(*features):
            yield ChecklistItem(text, f"docs/compatibility.md, {section}")


def _steps(checklist: Checklist) -> Iterator[ChecklistItem]:
    path = checklist.path
    if checklist.errors:
        yield ChecklistItem("Mend the errors", "", (f"ampServer --verify-config {path}",))
    for module in checklist.survey.modules:
        if module.state == ABSENT:
            yield ChecklistItem(f"Replace the module {module.name}: {module.advice}")
    if checklist.files:
        yield ChecklistItem(
            "Give the instance directories of its own (JournalDirectory, FileName of topics), so"
            f" that AMPS's files stay for the way back; ampServer {OPTION} renames them instead",
            "docs/compatibility.md, Files and directories",
        )
    stem = posixpath.splitext(Path(path).name)[0]
    yield ChecklistItem(
        "Start it beside AMPS, on another host or with other ports and directories, and look at it",
        "docs/operations.md",
        (f"ampServer {path}", f"amps-doctor --config {path}"),
    )
    yield ChecklistItem("Try each client program against it, with the list above in hand")
    if checklist.survey.has("replication"):
        yield ChecklistItem(
            "Check the configurations of all instances that replicate against each other",
            "docs/replication.md",
            (f"ampServer --verify-config {path} OTHER.xml",),
        )
    if checklist.data_steps:
        yield ChecklistItem("Carry data over, as above, while publishers still go to AMPS")
    yield ChecklistItem(
        "Stop the publishers, wait until what was carried over has come, and compare"
    )
    if checklist.survey.records:
        yield ChecklistItem(
            f"Are there as many records at {_NEW} as at {_OLD}? spark says how many there were",
            "",
            tuple(
                f"{_spark('sow', _NEW, checklist.survey)} {_topic_option(topic)} > /dev/null"
                for topic in checklist.survey.records
            ),
        )
    yield ChecklistItem(
        "Point subscribers, then publishers, to this server. What is published here from now on"
        " is not at AMPS: that is the end of the easy way back"
    )
    yield ChecklistItem(
        "Look at it again, and at the log, after an hour and after a day",
        "docs/monitoring.md",
        (f"amps-doctor --config {path} --output {stem}-after.tar.gz",),
    )
