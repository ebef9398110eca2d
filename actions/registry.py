"""The modules by the names that a configuration uses: one for each entry of the catalogue."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from actions.catalogue import DO_MODULES, IF_MODULES
from actions.client_triggers import OnClient
from actions.do_backup import DoBackup
from actions.do_compact_sow import DoCompactSow
from actions.do_compare_replication import DoCompareReplication
from actions.do_delete_sow import DoDeleteSow
from actions.do_echo_message import DoEchoMessage
from actions.do_execute_system import DoExecuteSystem
from actions.do_extract_values import DoExtractValues
from actions.do_increment_counter import DoIncrementCounter
from actions.do_nothing import DoNothing
from actions.do_publish_message import DoPublishMessage
from actions.do_query_sow import DoQuerySow
from actions.do_reload_configuration import DoReloadConfiguration
from actions.do_reset_authentication import DoResetAuthentication
from actions.do_reset_entitlement import DoResetEntitlement
from actions.do_rotate_logs import DoRotateLogs
from actions.do_run_pipeline import DoRunPipeline
from actions.do_translate_data import DoTranslateData
from actions.events import DoExecuteEvent, OnExecuteEvent
from actions.if_condition import IfCondition
from actions.if_file_system_usage import IfFileSystemUsage
from actions.link_triggers import OnLink
from actions.minidumps import DoMinidump, OnMinidump
from actions.module import Condition, Step, Trigger
from actions.old_files import DoCompressFiles, DoRemoveFiles
from actions.old_journals import OldJournals
from actions.on_admin import OnAdmin
from actions.on_alert import OnAlert
from actions.on_deliver_message import OnDeliverMessage
from actions.on_file_change import OnFileChange
from actions.on_message_affinity import OnMessageAffinity
from actions.on_publish_message import OnPublishMessage
from actions.on_schedule import OnSchedule
from actions.on_signal import OnSignal
from actions.proxied_transfer import ChangeProxiedTransfer
from actions.record_triggers import OnOofMessage, OnSowDeleteMessage, OnSowExpireMessage
from actions.security_switches import SwitchAuthentication, SwitchEntitlement
from actions.start_and_stop import DoShutdown, OnShutdown, OnStartup
from actions.statistics_database import DoTruncateStatistics, DoVacuumStatistics
from actions.step_options import StepOptions
from actions.subscription_triggers import SUBSCRIBE_EVENTS, OnSubscription
from actions.sync_types import ChangeSyncType
from actions.tracked_records import OnMessageConditionTimeout
from actions.transport_switch import SwitchTransport
from config_schema.spec import Options
from server.engine.maintenance.journal_retention import JournalAction
from server.replication.links.link_events import LinkEvent
from server.replication.links.replication_state import ReplicationState

TRIGGERS: Final[Mapping[str, Callable[[Options], Trigger]]] = {
    "amps-action-on-admin": OnAdmin,
    "amps-action-on-alert": OnAlert,
    "amps-action-on-connect-client": partial(OnClient, event="connect"),
    "amps-action-on-connect-incoming-replication": partial(
        OnLink, event=LinkEvent.CONNECT_INCOMING
    ),
    "amps-action-on-connect-replication": partial(OnLink, event=LinkEvent.CONNECT),
    "amps-action-on-deliver-message": OnDeliverMessage,
    "amps-action-on-disconnect-client": partial(OnClient, event="disconnect", includes_user=True),
    "amps-action-on-disconnect-incoming-replication": partial(
        OnLink, event=LinkEvent.DISCONNECT_INCOMING
    ),
    "amps-action-on-disconnect-replication": partial(OnLink, event=LinkEvent.DISCONNECT),
    "amps-action-on-downgrade-replication": partial(OnLink, event=LinkEvent.DOWNGRADE),
    "amps-action-on-execute-event": OnExecuteEvent,
    "amps-action-on-file-change": OnFileChange,
    "amps-action-on-logon-client": partial(OnClient, event="logon", includes_user=True),
    "amps-action-on-message-affinity": OnMessageAffinity,
    "amps-action-on-message-condition-timeout": OnMessageConditionTimeout,
    "amps-action-on-minidump": OnMinidump,
    "amps-action-on-offline-start": partial(OnClient, event="offline_start"),
    "amps-action-on-offline-stop": partial(OnClient, event="offline_stop"),
    "amps-action-on-oof-message": OnOofMessage,
    "amps-action-on-publish-message": OnPublishMessage,
    "amps-action-on-replication-resync-complete": partial(OnLink, event=LinkEvent.RESYNC_COMPLETE),
    "amps-action-on-schedule": OnSchedule,
    "amps-action-on-shutdown": OnShutdown,
    "amps-action-on-signal": OnSignal,
    "amps-action-on-sow-delete-message": OnSowDeleteMessage,
    "amps-action-on-sow-expire-message": OnSowExpireMessage,
    "amps-action-on-startup": OnStartup,
    "amps-action-on-subscribe": partial(OnSubscription, events=SUBSCRIBE_EVENTS),
    "amps-action-on-unsubscribe": partial(OnSubscription, events=("unsubscribe",)),
    "amps-action-on-upgrade-replication": partial(OnLink, event=LinkEvent.UPGRADE),
}

STEPS: Final[Mapping[str, Callable[[StepOptions], Step]]] = {
    "amps-action-do-archive-journal": partial(OldJournals, operation=JournalAction.ARCHIVE),
    "amps-action-do-backup": DoBackup,
    "amps-action-do-compact-sow": DoCompactSow,
    "amps-action-do-compare-replication": DoCompareReplication,
    "amps-action-do-compress-files": DoCompressFiles,
    "amps-action-do-compress-journal": partial(OldJournals, operation=JournalAction.COMPRESS),
    "amps-action-do-delete-sow": DoDeleteSow,
    "amps-action-do-disable-authentication": partial(SwitchAuthentication, is_on=False),
    "amps-action-do-disable-entitlement": partial(SwitchEntitlement, is_on=False),
    "amps-action-do-disable-proxied-transfer": partial(ChangeProxiedTransfer, enabled=False),
    "amps-action-do-disable-transport": partial(SwitchTransport, enabled=False),
    "amps-action-do-downgrade-replication": partial(
        ChangeSyncType, change=ReplicationState.downgrade_late
    ),
    "amps-action-do-echo-message": DoEchoMessage,
    "amps-action-do-enable-authentication": partial(SwitchAuthentication, is_on=True),
    "amps-action-do-enable-entitlement": partial(SwitchEntitlement, is_on=True),
    "amps-action-do-enable-proxied-transfer": partial(ChangeProxiedTransfer, enabled=True),
    "amps-action-do-enable-transport": partial(SwitchTransport, enabled=True),
    "amps-action-do-execute-event": DoExecuteEvent,
    "amps-action-do-execute-system": DoExecuteSystem,
    "amps-action-do-extract-values": DoExtractValues,
    "amps-action-do-increment-counter": DoIncrementCounter,
    "amps-action-do-minidump": DoMinidump,
    "amps-action-do-nothing": DoNothing,
    "amps-action-do-publish-message": DoPublishMessage,
    "amps-action-do-query-sow": DoQuerySow,
    "amps-action-do-reload-configuration": DoReloadConfiguration,
    "amps-action-do-remove-files": DoRemoveFiles,
    "amps-action-do-remove-journal": partial(OldJournals, operation=JournalAction.REMOVE),
    "amps-action-do-reset-authentication": DoResetAuthentication,
    "amps-action-do-reset-entitlement": DoResetEntitlement,
    "amps-action-do-rotate-logs": DoRotateLogs,
    "amps-action-do-run-pipeline": DoRunPipeline,
    "amps-action-do-shutdown": DoShutdown,
    "amps-action-do-translate-data": DoTranslateData,
    "amps-action-do-truncate-statistics": DoTruncateStatistics,
    "amps-action-do-upgrade-replication": partial(
        ChangeSyncType, change=ReplicationState.upgrade_recovered
    ),
    "amps-action-do-vacuum-statistics": DoVacuumStatistics,
}

CONDITIONS: Final[Mapping[str, Callable[[StepOptions], Condition]]] = {
    "amps-action-if-condition": IfCondition,
    "amps-action-if-file-system-usage": IfFileSystemUsage,
}


def make_part(name: str, options: Options) -> Step | Condition:
    """Create a Do or If module.

    Args:
        name: the module's name.
        options: its options, as configured.
    """
    if name in CONDITIONS:
        return CONDITIONS[name](StepOptions(options, IF_MODULES[name]))
    return STEPS[name](StepOptions(options, DO_MODULES[name]))
