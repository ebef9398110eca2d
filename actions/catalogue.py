"""The On, If and Do modules of the Actions section: their options and the variables they set.

Pure data, in the vocabulary of the configuration. Verification checks an Action against these
tables, the modules are built against them, and their documentation is printed from them.
Source: AMPS User Guide, Configuring AMPS for Automation with Actions; Crontab is measured.
"""

from collections.abc import Mapping
from typing import Final

from config_schema.catalogue import ModuleKind, ModuleRule, OptionRule, ValueKind

PIPELINE_LIBRARY: Final = "libamps_spark_pipeline.so"
"""The library to load for jobs of the pipeline."""

PIPELINE_JOBS: Final = ("export", "replay", "rebuild", "history", "stats")

EXPIRATION_REASONS: Final = ("time_limit", "forced_expire", "max_cancels", "max_deliveries")

_CLIENT: Final = ("AMPS_CLIENT_NAME", "AMPS_CONNECTION_NAME")
_MESSAGE: Final = ("AMPS_TOPIC", "AMPS_DATA", "AMPS_DATA_LENGTH")
_SUBSCRIPTION: Final = ("AMPS_TOPIC", "AMPS_CLIENT_NAME", "AMPS_OPTIONS", "AMPS_FILTER")
_TRACKED: Final = (
    *_MESSAGE,
    "AMPS_BOOKMARK",
    "AMPS_TIMESTAMP",
    "AMPS_CLIENT_NAME",
    "AMPS_SOW_KEY",
)
_REPLICATION: Final = (
    "AMPS_REPLICATION_PEER_NAME",
    "AMPS_REPLICATION_CLIENT_NAME",
    "AMPS_REPLICATION_REMOTE_ADDRESS",
    "AMPS_REPLICATION_GROUP_NAME",
)


def _required(
    name: str, value: ValueKind, text: str, *, repeatable: bool = False, is_fixed: bool = False
) -> OptionRule:
    return OptionRule(name, value, text, required=True, repeatable=repeatable, is_fixed=is_fixed)


def _optional(name: str, value: ValueKind, text: str, default: str | None = None) -> OptionRule:
    return OptionRule(name, value, text, default=default)


def _table(*rules: ModuleRule) -> Mapping[str, ModuleRule]:
    return {rule.name: rule for rule in rules}


_TYPE: Final = _required(
    "MessageType", ValueKind.MESSAGE_TYPE, "message type of the topic", is_fixed=True
)
_TOPICS: Final = _required(
    "Topic", ValueKind.TOPIC_PATTERN, "topic to watch, or a regular expression over topics"
)
_STORED: Final = _required(
    "Topic", ValueKind.STORED_TOPIC, "topic of the SOW section to watch, by its exact name"
)
_RECORDS: Final = _required(
    "Topic",
    ValueKind.RECORD_TOPIC,
    "topic, view or conflated topic to watch, by its exact name",
)
_FILTER: Final = _optional("Filter", ValueKind.FILTER, "only messages that match it count")
_DURATION: Final = _optional(
    "Duration", ValueKind.INTERVAL, "how long a message may match before the action runs"
)
_OPTIONS_HELP: Final = "options of the command, as a client would give them"

ON_MODULES: Final = _table(
    ModuleRule(
        "amps-action-on-schedule",
        "runs at regular intervals or at times of the calendar",
        (
            _optional("Every", ValueKind.EVERY, "a duration, a time of day, or a day and a time"),
            _optional("Crontab", ValueKind.CRONTAB, "five fields of cron, in local time"),
            _optional("Name", ValueKind.TEXT, "name of the schedule in the log; else what it says"),
        ),
        one_of=(("Every", "Crontab"),),
    ),
    ModuleRule("amps-action-on-startup", "runs as the last step of starting"),
    ModuleRule("amps-action-on-shutdown", "runs as the first step of stopping"),
    ModuleRule(
        "amps-action-on-signal",
        "runs when the process receives a signal, instead of the default for that signal",
        (_required("Signal", ValueKind.SIGNAL, "name of the signal, such as SIGUSR1"),),
    ),
    ModuleRule(
        "amps-action-on-admin",
        "runs on a request below /amps/administrator/actions of the admin interface",
        (
            _required("Path", ValueKind.RESOURCE, "name of the resource, without a slash"),
            OptionRule(
                "RequiredParameter",
                ValueKind.NAME,
                "query parameter that a request must have",
                repeatable=True,
            ),
            _optional("Name", ValueKind.TEXT, "name to display for the resource"),
            _optional("Description", ValueKind.TEXT, "description to display for the resource"),
        ),
        exports_named_by=("RequiredParameter",),
        open_context=True,
        needs="Admin",
    ),
    ModuleRule(
        "amps-action-on-minidump",
        "runs when a minidump is written",
        exports=("AMPS_MINIDUMP_PATH",),
    ),
    ModuleRule("amps-action-on-connect-client", "runs when a client connects", exports=_CLIENT),
    ModuleRule(
        "amps-action-on-disconnect-client",
        "runs when a client disconnects",
        exports=(*_CLIENT, "AMPS_AUTHENTICATION_ID"),
    ),
    ModuleRule(
        "amps-action-on-logon-client",
        "runs when a client logs on",
        exports=(*_CLIENT, "AMPS_AUTHENTICATION_ID"),
    ),
    ModuleRule(
        "amps-action-on-offline-start",
        "runs when messages of a slow client begin to go to disk",
        exports=_CLIENT,
    ),
    ModuleRule(
        "amps-action-on-offline-stop", "runs when a slow client has caught up", exports=_CLIENT
    ),
    ModuleRule(
        "amps-action-on-subscribe",
        "runs when a client subscribes",
        (_TOPICS, _TYPE),
        exports=_SUBSCRIPTION,
    ),
    ModuleRule(
        "amps-action-on-unsubscribe",
        "runs when a client unsubscribes or disconnects",
        (_TOPICS, _TYPE),
        exports=_SUBSCRIPTION,
    ),
    ModuleRule(
        "amps-action-on-connect-incoming-replication",
        "runs when an upstream instance connects",
        exports=_REPLICATION,
    ),
    ModuleRule(
        "amps-action-on-disconnect-incoming-replication",
        "runs when an upstream instance disconnects",
        exports=_REPLICATION,
    ),
    *(
        ModuleRule(
            f"amps-action-on-{event}",
            f"runs when {text}",
            exports=(*_REPLICATION, "AMPS_REPLICATION_TRANSPORT_NAME"),
            needs="Replication",
        )
        for event, text in (
            ("connect-replication", "a destination is connected"),
            ("disconnect-replication", "a destination is disconnected"),
            ("replication-resync-complete", "a destination has caught up with the journal"),
            ("upgrade-replication", "a destination goes back to sync acknowledgment"),
            ("downgrade-replication", "a destination is put on async acknowledgment"),
        )
    ),
    ModuleRule(
        "amps-action-on-publish-message",
        "runs for each message published to a topic",
        (
            _required(
                "Topic",
                ValueKind.PUBLISHED_TOPIC_PATTERN,
                "topic to watch, or a regular expression over topics",
            ),
            _TYPE,
            OptionRule(
                "MessageSource",
                ValueKind.CHOICE,
                "which publishes count: those made here, replicated ones, or all",
                default="all",
                choices=("all", "local", "replicated"),
            ),
            _FILTER,
            _optional("Options", ValueKind.SUBSCRIBE_OPTIONS, _OPTIONS_HELP),
        ),
        exports=(*_MESSAGE, "AMPS_BOOKMARK", "AMPS_TIMESTAMP", "AMPS_CLIENT_NAME"),
    ),
    ModuleRule(
        "amps-action-on-deliver-message",
        "runs for each message delivered to a subscriber",
        (_TOPICS, _TYPE),
        exports=(*_MESSAGE, "AMPS_BOOKMARK", "AMPS_CLIENT_NAME", "AMPS_CORRELATION_ID"),
    ),
    ModuleRule(
        "amps-action-on-message-affinity",
        "runs when a record is assigned to one of the clients that share a topic's work",
        (
            _required("MessageType", ValueKind.MESSAGE_TYPE, "message type of both topics"),
            _required("ControlTopic", ValueKind.TOPIC, "subscribers of this topic share the work"),
            _required("DataTopic", ValueKind.RECORD_TOPIC, "topic whose records are assigned"),
            _optional("DataFilter", ValueKind.FILTER, "only records that match it are assigned"),
        ),
        exports=(
            "AMPS_DATA",
            "AMPS_CLIENT_NAME",
            "AMPS_AFFINITY_ACTION",
            "AMPS_AFFINITY_REASON",
        ),
    ),
    ModuleRule(
        "amps-action-on-sow-expire-message",
        "runs for each message that expires from a topic or a queue",
        (
            _STORED,
            _TYPE,
            OptionRule(
                "Reason",
                ValueKind.CHOICES,
                "reasons of expiration that count; all of them if left out",
                choices=EXPIRATION_REASONS,
            ),
        ),
        exports=(*_MESSAGE, "AMPS_REASON", "AMPS_CORRELATION_ID"),
    ),
    ModuleRule(
        "amps-action-on-sow-delete-message",
        "runs for each record deleted from a topic",
        (_STORED, _TYPE),
        exports=(*_MESSAGE, "AMPS_CORRELATION_ID"),
    ),
    ModuleRule(
        "amps-action-on-oof-message",
        "runs when a record leaves the focus of a filter",
        (
            _required(
                "Topic",
                ValueKind.RECORD_TOPIC_PATTERN,
                "topic, view or conflated topic to watch, or a regular expression over them",
            ),
            _required(
                "MessageType", ValueKind.REGEX, "message type of the topic, or an expression"
            ),
            _FILTER,
            OptionRule(
                "Type",
                ValueKind.CHOICE,
                "why the record left: no match, deleted, expired, or any of them",
                default="all",
                choices=("match", "delete", "expire", "all"),
            ),
        ),
        exports=(*_MESSAGE, "AMPS_PREVIOUS_DATA", "AMPS_PREVIOUS_DATA_LENGTH"),
    ),
    ModuleRule(
        "amps-action-on-message-condition-timeout",
        "runs when a record has matched a filter for too long",
        (_RECORDS, _TYPE, _DURATION, _FILTER),
        exports=_TRACKED,
    ),
    ModuleRule(
        "amps-action-on-alert",
        "runs when a record has matched a filter for too long, or stopped matching before that",
        (
            _RECORDS,
            _TYPE,
            _required("OOFEvent", ValueKind.TEXT, "value to store when it stopped matching"),
            _required("TimeoutEvent", ValueKind.TEXT, "value to store when it timed out"),
            _required("EventVariable", ValueKind.NAME, "variable that receives that value"),
            _DURATION,
            _FILTER,
        ),
        exports=_TRACKED,
        exports_named_by=("EventVariable",),
    ),
    ModuleRule(
        "amps-action-on-execute-event",
        "runs when another action raises an event; it inherits that action's variables",
        (_required("Event", ValueKind.TEXT, "name of the event"),),
        open_context=True,
    ),
    ModuleRule(
        "amps-action-on-file-change",
        "runs when the content of a file changes; not in AMPS",
        (_required("Path", ValueKind.FILE, "the file, which need not exist"),),
        exports=("AMPS_FILE_PATH", "AMPS_FILE_CHANGE"),
    ),
)

IF_MODULES: Final = _table(
    ModuleRule(
        "amps-action-if-condition",
        "goes on only if a filter over the variables is true",
        (_required("Condition", ValueKind.CONDITION, "filter, after variables are filled in"),),
    ),
    ModuleRule(
        "amps-action-if-file-system-usage",
        "goes on only if a file system is fuller than a threshold",
        (
            _required("Path", ValueKind.FILE, "a path on that file system"),
            _required("GreaterThan", ValueKind.PERCENTAGE, "how full it must be, such as 90%"),
        ),
    ),
)

_AGE: Final = _required("Age", ValueKind.INTERVAL, "how old it must be, such as 5d")
_FILES: Final = (
    _AGE,
    _required("Pattern", ValueKind.FILE_PATTERN, "shell pattern of the files"),
    _optional("Keep", ValueKind.COUNT, "how many of these files to leave as they are"),
    _optional("Count", ValueKind.COUNT, "how many of these files to process at most"),
)
_ACKNOWLEDGMENT: Final = (
    _required("Age", ValueKind.INTERVAL, "age of the oldest unacknowledged message that decides"),
    _optional("GracePeriod", ValueKind.INTERVAL, "how long after the start nothing is changed"),
)
_ONE_TRANSPORT: Final = _optional(
    "Transport", ValueKind.TRANSPORT, "name of the transport; all of them if left out"
)
_QUEUE: Final = (
    _required("Topic", ValueKind.QUEUE_TOPIC, "name of the queue"),
    _required("MessageType", ValueKind.MESSAGE_TYPE, "message type of the queue"),
)
_QUERIED: Final = _required(
    "Topic",
    ValueKind.STORED_TOPIC_PATTERN,
    "topic of the SOW section, or a regular expression over them",
)

DO_MODULES: Final = _table(
    ModuleRule("amps-action-do-rotate-logs", "closes log files and opens the next ones"),
    ModuleRule("amps-action-do-compress-files", "compresses old files, but no journals", _FILES),
    ModuleRule("amps-action-do-remove-files", "removes old files, but no journals", _FILES),
    ModuleRule(
        "amps-action-do-truncate-statistics",
        "removes old statistics from the database",
        (_AGE,),
        needs="Admin",
    ),
    ModuleRule(
        "amps-action-do-vacuum-statistics",
        "gives back the disk space that the statistics database does not need",
        needs="Admin",
    ),
    ModuleRule(
        "amps-action-do-archive-journal",
        "moves old journals to the archive directory",
        (_AGE,),
        needs="TransactionLog/JournalArchiveDirectory",
    ),
    ModuleRule(
        "amps-action-do-compress-journal",
        "compresses old journals",
        (_AGE,),
        needs="TransactionLog",
    ),
    ModuleRule(
        "amps-action-do-remove-journal",
        "removes old journals that are not needed any more",
        (_AGE,),
        needs="TransactionLog",
    ),
    ModuleRule(
        "amps-action-do-delete-sow",
        "deletes records of a topic",
        (
            _QUERIED,
            _TYPE,
            OptionRule(
                "Filter",
                ValueKind.FILTER,
                "which records",
                absence="every record of the topic is deleted",
            ),
        ),
    ),
    ModuleRule(
        "amps-action-do-compact-sow",
        "gives unused space of SOW files back",
        (
            _optional("Topic", ValueKind.STORED_TOPIC, "the topic; all of them if left out"),
            _optional("MessageType", ValueKind.MESSAGE_TYPE, "message type of the topic"),
        ),
        together=(("Topic", "MessageType"),),
    ),
    ModuleRule(
        "amps-action-do-query-sow",
        "queries a topic and keeps the first record found",
        (
            _QUERIED,
            _TYPE,
            _required("Filter", ValueKind.FILTER, "which records to look for"),
            _required("CaptureData", ValueKind.NAME, "variable that receives the record"),
            _optional("DefaultData", ValueKind.BODY, "value of the variable if nothing is found"),
            _optional("OrderBy", ValueKind.ORDER_BY, "order of the records, such as /date DESC"),
            _optional("Options", ValueKind.SOW_OPTIONS, _OPTIONS_HELP),
        ),
        exports_named_by=("CaptureData",),
    ),
    ModuleRule("amps-action-do-disable-authentication", "switches authentication off"),
    ModuleRule("amps-action-do-enable-authentication", "switches authentication on"),
    ModuleRule("amps-action-do-disable-entitlement", "switches entitlement off"),
    ModuleRule("amps-action-do-enable-entitlement", "switches entitlement on"),
    *(
        ModuleRule(
            f"amps-action-do-reset-{what}",
            does,
            (
                _ONE_TRANSPORT,
                _optional(
                    "AuthenticationId", ValueKind.TEXT, "of this user; of all users if left out"
                ),
            ),
        )
        for what, does in (
            ("authentication", "clears what is cached for authentication"),
            (
                "entitlement",
                "clears what is cached for entitlement, and disconnects the clients concerned",
            ),
        )
    ),
    ModuleRule(
        "amps-action-do-enable-transport", "lets a transport listen again", (_ONE_TRANSPORT,)
    ),
    ModuleRule(
        "amps-action-do-disable-transport", "stops a transport and its clients", (_ONE_TRANSPORT,)
    ),
    ModuleRule(
        "amps-action-do-publish-message",
        "publishes a message",
        (
            _required("Topic", ValueKind.TOPIC, "topic of the message"),
            _TYPE,
            _required("Data", ValueKind.BODY, "body of the message"),
            _optional("Delta", ValueKind.BOOLEAN, "whether it is a delta publish", "false"),
            _optional("UpdateOnly", ValueKind.BOOLEAN, "whether a delta may not insert", "false"),
        ),
    ),
    ModuleRule(
        "amps-action-do-downgrade-replication",
        "puts destinations that fall behind on async acknowledgment",
        _ACKNOWLEDGMENT,
        needs="Replication",
    ),
    ModuleRule(
        "amps-action-do-upgrade-replication",
        "puts destinations that have caught up back on sync acknowledgment",
        _ACKNOWLEDGMENT,
        needs="Replication",
    ),
    ModuleRule(
        "amps-action-do-compare-replication",
        "compares records with those of the instances that replicate here; not in AMPS",
        (
            _optional("Peer", ValueKind.TEXT, "name of the other instance", "all of them"),
            _optional("Topic", ValueKind.STORED_TOPIC, "topic whose records are compared", "all"),
            _optional(
                "Repair",
                ValueKind.BOOLEAN,
                "whether one of two different messages is published once more",
                "false",
            ),
        ),
    ),
    ModuleRule(
        "amps-action-do-extract-values",
        "evaluates expressions over a message into variables",
        (
            _required(
                "MessageType", ValueKind.MESSAGE_TYPE, "message type of the data", is_fixed=True
            ),
            _required(
                "Value",
                ValueKind.ASSIGNMENT,
                "variable and expression, such as PRICE=/price",
                repeatable=True,
            ),
            OptionRule(
                "Data",
                ValueKind.BODY,
                "the message, most often {{AMPS_DATA}}",
                absence="there is nothing to extract values from",
            ),
        ),
        exports_named_by=("Value",),
    ),
    ModuleRule(
        "amps-action-do-translate-data",
        "translates a value into another by a list of cases",
        (
            _required("Data", ValueKind.TEXT, "the value, most often a variable"),
            _required("Value", ValueKind.NAME, "variable that receives the translation"),
            OptionRule("Case", ValueKind.TRANSLATION, "original=translated", repeatable=True),
            _optional("Default", ValueKind.TEXT, "translation of anything else"),
        ),
        exports_named_by=("Value",),
    ),
    ModuleRule(
        "amps-action-do-increment-counter",
        "adds one to a counter of the instance",
        (
            _required("Key", ValueKind.TEXT, "name of the counter"),
            _required("Value", ValueKind.NAME, "variable that receives the count"),
        ),
        exports_named_by=("Value",),
    ),
    ModuleRule(
        "amps-action-do-execute-event",
        "raises an event for amps-action-on-execute-event",
        (
            _optional("Event", ValueKind.TEXT, "name of the event"),
            _optional("EventVariable", ValueKind.NAME, "variable that holds the name"),
        ),
        one_of=(("Event", "EventVariable"),),
    ),
    ModuleRule(
        "amps-action-do-execute-system",
        "runs a shell command with the rights of the server",
        (
            _required("Command", ValueKind.COMMAND, "the command"),
            _optional(
                "Timeout",
                ValueKind.INTERVAL,
                "how long it may take before it is killed; not in AMPS",
                "60s",
            ),
        ),
    ),
    ModuleRule(
        "amps-action-do-run-pipeline",
        "runs a job of the data pipeline in a process of its own; not in AMPS",
        (
            OptionRule(
                "Job",
                ValueKind.CHOICE,
                "the job; see amps-pipeline(1)",
                required=True,
                choices=PIPELINE_JOBS,
            ),
            _optional(
                "Arguments", ValueKind.ARGUMENTS, "the job's arguments, with quotes as in a shell"
            ),
            _optional("Master", ValueKind.ARGUMENTS, "where Spark runs", "local[*]"),
            OptionRule(
                "Conf", ValueKind.ARGUMENTS, "a setting of Spark's, as NAME=VALUE", repeatable=True
            ),
            _optional(
                "Timeout", ValueKind.INTERVAL, "how long it may take before it is killed", "1h"
            ),
        ),
        library=PIPELINE_LIBRARY,
    ),
    ModuleRule(
        "amps-action-do-enable-proxied-transfer",
        "lets a queue deliver messages owned by an unreachable instance",
        _QUEUE,
    ),
    ModuleRule(
        "amps-action-do-disable-proxied-transfer",
        "stops a queue from delivering messages owned elsewhere",
        _QUEUE,
    ),
    ModuleRule(
        "amps-action-do-backup",
        "makes a backup of the instance; not in AMPS",
        (
            _required("Directory", ValueKind.FILE, "directory of the backups"),
            _optional("Keep", ValueKind.COUNT, "how many complete backups to keep"),
            _optional("KeepDays", ValueKind.COUNT, "for how many days to keep backups"),
        ),
    ),
    ModuleRule(
        "amps-action-do-reload-configuration",
        "reads the configuration file again, and applies all differences or none, as `amps-ctl"
        " reload`; not in AMPS",
    ),
    ModuleRule("amps-action-do-minidump", "writes a minidump"),
    ModuleRule("amps-action-do-shutdown", "stops the instance"),
    ModuleRule("amps-action-do-nothing", "does nothing; for trying out an On"),
    ModuleRule(
        "amps-action-do-echo-message",
        "writes a line to the log",
        (_required("Message", ValueKind.TEXT, "the line"),),
    ),
)

ACTION_MODULES: Final[Mapping[ModuleKind, Mapping[str, ModuleRule]]] = {
    ModuleKind.ON: ON_MODULES,
    ModuleKind.IF: IF_MODULES,
    ModuleKind.DO: DO_MODULES,
}
