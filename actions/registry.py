"""The modules by the names that a configuration uses: one for each entry of the catalogue."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from actions.catalogue import DO_MODULES, IF_MODULES
from actions.client_triggers import (
    OnConnectClient,
    OnDisconnectClient,
    OnLogonClient,
    OnOfflineStart,
    OnOfflineStop,
)
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
from actions.link_triggers import (
    OnConnectIncomingReplication,
    OnConnectReplication,
    OnDisconnectIncomingReplication,
    OnDisconnectReplication,
    OnDowngradeReplication,
    OnReplicationResyncComplete,
    OnUpgradeReplication,
)
from actions.minidumps import DoMinidump, OnMinidump
from actions.module import Condition, Step, Trigger
from actions.old_files import DoCompressFiles, DoRemoveFiles
from actions.old_journals import DoArchiveJournal, DoCompressJournal, DoRemoveJournal
from actions.on_admin import OnAdmin
from actions.on_alert import OnAlert
from actions.on_deliver_message import OnDeliverMessage
from actions.on_file_change import OnFileChange
from actions.on_message_affinity import OnMessageAffinity
from actions.on_publish_message import OnPublishMessage
from actions.on_schedule import OnSchedule
from actions.on_signal import OnSignal
from actions.proxied_transfer import DoDisableProxiedTransfer, DoEnableProxiedTransfer
from actions.record_triggers import OnOofMessage, OnSowDeleteMessage, OnSowExpireMessage
from actions.security_switches import (
    DoDisableAuthentication,
    DoDisableEntitlement,
    DoEnableAuthentication,
    DoEnableEntitlement,
)
from actions.start_and_stop import DoShutdown, OnShutdown, OnStartup
from actions.statistics_database import DoTruncateStatistics, DoVacuumStatistics
from actions.step_options import StepOptions
from actions.subscription_triggers import OnSubscribe, OnUnsubscribe
from actions.sync_types import DoDowngradeReplication, DoUpgradeReplication
from actions.tracked_records import OnMessageConditionTimeout
from actions.transport_switch import DoDisableTransport, DoEnableTransport
from config_schema.spec import Options

TRIGGERS: Final[Mapping[str, Callable[[Options], Trigger]]] = {
    "amps-action-on-admin": OnAdmin,
    "amps-action-on-alert": OnAlert,
    "amps-action-on-connect-client": OnConnectClient,
    "amps-action-on-connect-incoming-replication": OnConnectIncomingReplication,
    "amps-action-on-connect-replication": OnConnectReplication,
    "amps-action-on-deliver-message": OnDeliverMessage,
    "amps-action-on-disconnect-client": OnDisconnectClient,
    "amps-action-on-disconnect-incoming-replication": OnDisconnectIncomingReplication,
    "amps-action-on-disconnect-replication": OnDisconnectReplication,
    "amps-action-on-downgrade-replication": OnDowngradeReplication,
    "amps-action-on-execute-event": OnExecuteEvent,
    "amps-action-on-file-change": OnFileChange,
    "amps-action-on-logon-client": OnLogonClient,
    "amps-action-on-message-affinity": OnMessageAffinity,
    "amps-action-on-message-condition-timeout": OnMessageConditionTimeout,
    "amps-action-on-minidump": OnMinidump,
    "amps-action-on-offline-start": OnOfflineStart,
    "amps-action-on-offline-stop": OnOfflineStop,
    "amps-action-on-oof-message": OnOofMessage,
    "amps-action-on-publish-message": OnPublishMessage,
    "amps-action-on-replication-resync-complete": OnReplicationResyncComplete,
    "amps-action-on-schedule": OnSchedule,
    "amps-action-on-shutdown": OnShutdown,
    "amps-action-on-signal": OnSignal,
    "amps-action-on-sow-delete-message": OnSowDeleteMessage,
    "amps-action-on-sow-expire-message": OnSowExpireMessage,
    "amps-action-on-startup": OnStartup,
    "amps-action-on-subscribe": OnSubscribe,
    "amps-action-on-unsubscribe": OnUnsubscribe,
    "amps-action-on-upgrade-replication": OnUpgradeReplication,
}

STEPS: Final[Mapping[str, Callable[[StepOptions], Step]]] = {
    "amps-action-do-archive-journal": DoArchiveJournal,
    "amps-action-do-backup": DoBackup,
    "amps-action-do-compact-sow": DoCompactSow,
    "amps-action-do-compare-replication": DoCompareReplication,
    "amps-action-do-compress-files": DoCompressFiles,
    "amps-action-do-compress-journal": DoCompressJournal,
    "amps-action-do-delete-sow": DoDeleteSow,
    "amps-action-do-disable-authentication": DoDisableAuthentication,
    "amps-action-do-disable-entitlement": DoDisableEntitlement,
    "amps-action-do-disable-proxied-transfer": DoDisableProxiedTransfer,
    "amps-action-do-disable-transport": DoDisableTransport,
    "amps-action-do-downgrade-replication": DoDowngradeReplication,
    "amps-action-do-echo-message": DoEchoMessage,
    "amps-action-do-enable-authentication": DoEnableAuthentication,
    "amps-action-do-enable-entitlement": DoEnableEntitlement,
    "amps-action-do-enable-proxied-transfer": DoEnableProxiedTransfer,
    "amps-action-do-enable-transport": DoEnableTransport,
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
    "amps-action-do-remove-journal": DoRemoveJournal,
    "amps-action-do-reset-authentication": DoResetAuthentication,
    "amps-action-do-reset-entitlement": DoResetEntitlement,
    "amps-action-do-rotate-logs": DoRotateLogs,
    "amps-action-do-run-pipeline": DoRunPipeline,
    "amps-action-do-shutdown": DoShutdown,
    "amps-action-do-translate-data": DoTranslateData,
    "amps-action-do-truncate-statistics": DoTruncateStatistics,
    "amps-action-do-upgrade-replication": DoUpgradeReplication,
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
