"""The life cycle of an instance: provision, recover, open, run, close.

Opened parts are closed in reverse order, however far the start came. The event loop, the sockets
and the signals live here and in transports/; everything below is driven by plain calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from actions.defaults import signals_in_use
from actions.reset import disconnect_users, reset_entitlement
from actions.runner import ActionError, ActionRunner
from actions.services import ActionServices, StopRequestedError
from config_schema.configuration_text import redact_document
from config_schema.document import ConfigDocument
from config_schema.spec import (
    AdminSpec,
    ConflatedTopicSpec,
    InstanceSpec,
    TopicSpec,
    TransactionLogSpec,
    ViewSpec,
)
from server.admin.interface import AdminInterface, AdminInterfaceError
from server.admin.operations.log_targets import log_target_group
from server.admin.operations.operation import OperationGroup
from server.admin.pages import ConfigurationText
from server.app.wiring.backup_sources import backup_sources
from server.app.wiring.dead_threads import watch_threads
from server.app.wiring.drain import InstanceDrain
from server.app.wiring.loop_clock import LoopClock
from server.app.wiring.open_telemetry import MissingLibraryError, make_export, start_traces
from server.app.wiring.open_topics import OpenTopics
from server.app.wiring.provision import (
    ProvisionError,
    message_type_modules,
    provision_functions,
    provision_message_types,
    with_unified_fix_tags,
)
from server.app.wiring.provision_admin import provision_admin
from server.app.wiring.provision_console import provision_console
from server.app.wiring.provision_journal import open_journal, recover
from server.app.wiring.provision_queues import InstanceQueues
from server.app.wiring.provision_sow import (
    recover_all_chains,
    rekey_all_records,
    store_logged_flags,
    warn_of_lost_records,
)
from server.app.wiring.provision_statistics import StatisticsService, sources_of
from server.app.wiring.reload_services import MakeReload, ReloadServices
from server.app.wiring.replication_start import start_replication
from server.app.wiring.source_files import SourceFileWatch
from server.app.wiring.transport_table import TransportTable
from server.engine.engine import Engine
from server.engine.internal_client import InternalClient
from server.engine.maintenance.backup import InstanceBackup
from server.engine.maintenance.certificate_expiry import CertificateCheck
from server.engine.maintenance.journal_retention import JournalRetention
from server.expressions.backends import columns
from server.log.event_log import EventLog
from server.log.level_overrides import LevelOverrides
from server.message_types.base import BodyError
from server.process import garbage_collection
from server.process.file_watch import FileWatch
from server.process.minidump import write_minidump
from server.process.supervisor import Supervisor
from server.queues.topic.peers import QueuePeers
from server.queues.topic.queue_table import QueueTable
from server.replication.links.lag_monitor import ReplicationLagMonitor
from server.replication.links.mesh_reports import MeshReporter
from server.statistics.size_summary import sizes
from server.storage.sow.lookups import ValueLookups
from server.storage.sow.records import NANOSECONDS
from server.topics.settings import EngineSettings
from server.topics.transaction_log import TransactionLog
from server.transports.listener import TransportError
from server.util.daemon_threads import DaemonThreadPool

_MAX_THREADS: Final = 16
"""For blocking calls, such as those that read a file with a password."""


class StartError(Exception):
    """An instance cannot start. The text is for the operator."""


class Instance:
    """A server instance.

    Args:
        spec: its description.
        log: its event log.
        configuration: the document that the description was read from; None if there is none.
        supervisor: notified of the start's progress, and that the engine's loop runs.
        make_reload: makes the operations that reload the configuration; None for none.

    Attributes:
        transports: its transports.

    Raises:
        ProvisionError: a message type or function cannot be made.
        StartError: a transport filter cannot be made.
    """

    def __init__(
        self,
        spec: InstanceSpec,
        log: EventLog,
        configuration: ConfigDocument | None = None,
        supervisor: Supervisor | None = None,
        make_reload: MakeReload | None = None,
    ) -> None:
        self._make_reload = make_reload
        self._spec = spec
        self._supervisor = supervisor or Supervisor({})
        self._log = log
        self._lookups = ValueLookups()
        self._clock = LoopClock()
        self._engine = Engine(
            EngineSettings(
                instance_name=spec.name,
                message_types=provision_message_types(spec),
                message_type_modules=message_type_modules(spec),
                unified_fix_tags=with_unified_fix_tags(spec),
                functions=provision_functions(spec, log, self._lookups.find),
                regex_topics=spec.regex_topic_support,
            ),
            log,
            self._clock,
            time.perf_counter,
            time.thread_time,
        )
        self._engine.security_switches.reset = partial(reset_entitlement, self._engine)
        try:
            self.transports = TransportTable(spec, self._engine)
        except TransportError as error:
            raise StartError(str(error)) from None
        self._queue_peers = QueuePeers()
        self._file_watch = FileWatch(log)
        self._source_files = SourceFileWatch(
            self._file_watch, self._engine.settings.message_types, log
        )
        self._certificate_check = CertificateCheck(self._engine.clock, log)
        self._configuration = configuration
        self._services = self._make_services()
        self._actions = ActionRunner(spec, self._services)
        self._drain = InstanceDrain(
            self._engine, self.transports, self._services, self._request_stop
        )
        self._shown = ConfigurationText(
            redact_document(configuration) if configuration else "",
            spec,
            configuration.secrets if configuration else (),
        )
        self._lag_monitor: ReplicationLagMonitor | None = None
        self._mesh_reporter: MeshReporter | None = None
        self._can_reload = asyncio.Event()
        self._stop_requested = asyncio.Event()
        self._stopping_since_s = 0.0

    async def run(self, on_started: Callable[[], None]) -> None:
        """Start, serve until a signal requests a stop, then stop.

        Args:
            on_started: called once all transports are open; not if a signal ends the start.

        Raises:
            StartError: a part cannot be started; all others have been stopped again.
            ProvisionError: a file or module of a topic cannot be used; likewise.
        """
        started_at = time.monotonic()
        self._loop = loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._log_defect)
        loop.set_default_executor(DaemonThreadPool(_MAX_THREADS, "helper"))
        _allow_all_open_files()
        self._services.signals.record_signals(signals_in_use(self._spec.actions))
        try:
            async with contextlib.AsyncExitStack() as opened:
                opened.callback(watch_threads(self._log))
                await self._start(opened)
                self._clock.start(self._engine.scheduler)
                opened.callback(self._clock.stop)
                garbage_collection.settle()
                opened.callback(
                    garbage_collection.GarbageCollector(
                        self._engine.clock,
                        lambda: self._engine.sessions_ended,
                        lambda: len(self._engine.sessions),
                    ).stop
                )
                self._log.emit("00-0015", seconds=round(time.monotonic() - started_at))
                on_started()
                self._supervisor.report_ready(self._spec.name, self._engine.clock)
                await self._stop_requested.wait()
                self._supervisor.report_stopping()
                await self._actions.run_shutdown_actions()
                await self._close_sessions()
        except StopRequestedError as stop:
            self._request_stop(str(stop))
        self._log.emit("FF-0002", seconds=round(time.monotonic() - self._stopping_since_s))

    async def _start(self, opened: contextlib.AsyncExitStack) -> None:
        check_stop_request, begin_step = self._check_stop_request, self._supervisor.begin_step
        self._watch_files(opened)
        self._start_traces(opened)
        begin_step("the transaction log is opened")
        journal = self._open_journal(opened)
        check_stop_request()
        queues = None
        if journal is not None:
            queues = InstanceQueues(self._spec, self._engine, journal[1], self._queue_peers)
        table = None if queues is None else queues.table
        topics = self._open_topics(opened, check_stop_request, table)
        settle = topics.committer.wait_for_jobs
        if table is not None:
            self._engine.topics.use_queues(table)
        begin_step("chained ids are checked")
        recover_all_chains(
            topics,
            None if journal is None else journal[1].journal,
            self._engine,
            check_stop_request,
        )
        if journal is not None:
            warn_of_lost_records(topics, journal[1].journal, self._engine)
            begin_step("records are brought up to date with the log")
            recover(*journal, self._engine, settle, check_stop_request)
            if queues is not None:
                begin_step("queues are read from the log")
                queues.recover(check_stop_request)
                opened.callback(queues.close)
            begin_step("what other instances have is read from the log")
            started = start_replication(
                self._spec,
                self._engine,
                journal[1],
                self._queue_peers,
                self.transports,
                self._services,
                opened,
                check_stop_request,
            )
            if started is not None:
                self._mesh_reporter, self._lag_monitor = started
            self._start_journal_retention(journal[1], opened)
        begin_step("SOW keys are checked")
        rekey_all_records(
            self._engine.sow_registry.topics, self._engine.log, settle, check_stop_request
        )
        store_logged_flags(self._engine.sow_registry.topics, self._engine)
        begin_step("views are made")
        self._engine.sow_registry.populate_derived()
        check_stop_request()
        begin_step("transports are opened")
        statistics = self._start_statistics(opened)
        self._prepare_backup(topics, opened)
        self._provision_actions(opened)
        opened.callback(self._drain.close)
        groups = self._operation_groups(topics, queues, statistics)
        admin = self._open_admin_interface(statistics, groups, opened)
        await self._open_transports(opened)
        opened.callback(self._certificate_check.close)
        self._certificate_check.start(self._spec)
        self._can_reload.set()
        await self._actions.start()
        if admin is not None:
            admin.serve()

    def _check_stop_request(self) -> None:
        """Check for a stop, and report progress to the supervisor; called often during the start.

        Raises:
            StopRequestedError: a signal has ended the start.
        """
        self._services.signals.check_stop_requested()
        self._supervisor.report_progress()

    def _open_journal(
        self, opened: contextlib.AsyncExitStack
    ) -> tuple[TransactionLogSpec, TransactionLog] | None:
        """Open the transaction log, if one is configured, and return it with its configuration.

        Raises:
            ProvisionError: its files cannot be used.
        """
        spec = self._spec.transaction_log
        if spec is None:
            return None
        log = open_journal(self._spec, spec, self._engine, self._post)
        opened.callback(log.close)
        return spec, log

    def _start_journal_retention(
        self, log: TransactionLog, opened: contextlib.AsyncExitStack
    ) -> None:
        self._services.journal_retention = JournalRetention(
            log, self._engine.sow_registry, self._engine.clock, self._engine.log
        )
        opened.push_async_callback(self._services.journal_retention.close)

    def _prepare_backup(self, topics: OpenTopics, opened: contextlib.AsyncExitStack) -> None:
        engine = self._engine
        self._services.backup = InstanceBackup(
            backup_sources(self._spec, self._source_files, topics),
            engine.sow_registry,
            engine.transaction_log,
            self._log,
        )
        opened.push_async_callback(self._services.backup.close)

    def _make_services(self) -> ActionServices:
        return ActionServices(
            engine=self._engine,
            make_client=partial(InternalClient, self._engine),
            transports=self.transports,
            stop_instance=self._request_stop,
            rotate_logs=self._log.rotate,
            write_minidump=self._write_minidump,
            file_watch=self._file_watch,
        )

    def _watch_files(self, opened: contextlib.AsyncExitStack) -> None:
        opened.callback(self._file_watch.close)
        files = () if self._configuration is None else self._configuration.files
        self._source_files.watch(files, self._spec)
        self.transports.watch_certificates(self._file_watch)
        self._engine.security_switches.users_files.watch(
            self._file_watch, partial(disconnect_users, self._engine)
        )

    def _start_statistics(self, opened: contextlib.AsyncExitStack) -> StatisticsService | None:
        """Start to sample statistics, if the configuration has an Admin section.

        Raises:
            StartError: the libraries that export them are not installed.
        """
        admin = self._spec.admin
        if admin is None:
            return None
        statistics = StatisticsService(
            self._certificate_check,
            admin,
            self._engine,
            self._log,
            indexed=self._spec.tuning.statistics_indexing_enabled,
        )
        opened.callback(statistics.close)
        self._export_statistics(admin, statistics, opened)
        statistics.start(
            sources_of(
                self._spec,
                self._engine,
                self.transports,
                self._services.replication,
                self._mesh_reporter,
                statistics.collector,
            )
        )
        self._services.statistics = statistics.statistics_thread
        self.transports.set_statistics(statistics.statistics_thread)
        return statistics

    def _start_traces(self, opened: contextlib.AsyncExitStack) -> None:
        try:
            start_traces(self._spec, self._engine, self._log, opened)
        except MissingLibraryError as error:
            raise StartError(str(error)) from None

    def _export_statistics(
        self, admin: AdminSpec, statistics: StatisticsService, opened: contextlib.AsyncExitStack
    ) -> None:
        if admin.open_telemetry is None:
            return
        try:
            export = make_export(self._spec, admin.open_telemetry, self._engine, self._log)
        except MissingLibraryError as error:
            raise StartError(str(error)) from None
        export.start(statistics.statistics_thread)
        opened.callback(export.close)

    def _open_admin_interface(
        self,
        statistics: StatisticsService | None,
        groups: list[OperationGroup],
        opened: contextlib.AsyncExitStack,
    ) -> AdminInterface | None:
        """Listen on the address of the admin interface, if any; it answers when all else runs.

        Raises:
            StartError: it cannot listen on its address.
        """
        admin = self._spec.admin
        if admin is None or admin.inet_addr is None or statistics is None:
            return None
        console = partial(
            provision_console,
            self._spec,
            admin,
            self._engine,
            self._actions,
            self._log.recent,
            statistics.statistics_thread,
            self._shown,
            lambda: self.transports.console_sql,
        )
        interface = provision_admin(
            self._spec,
            admin,
            self._engine,
            self._services,
            statistics.statistics_thread,
            self._post,
            self._shown,
            console,
            groups,
            self._drain,
            self._log,
            self._certificate_check,
        )
        opened.callback(interface.close)
        try:
            interface.listen(admin.inet_addr)
        except AdminInterfaceError as error:
            raise StartError(str(error)) from None
        interface.watch_certificates(self._file_watch)
        return interface

    def _operation_groups(
        self,
        topics: OpenTopics,
        queues: InstanceQueues | None,
        statistics: StatisticsService | None,
    ) -> list[OperationGroup]:
        """Return operations of administrators that need more than the services of actions.

        Actions can reload the configuration from now on.
        """
        groups = [log_target_group(LevelOverrides(self._log, self._clock))]
        if self._make_reload is not None:
            services = ReloadServices(
                self._engine,
                topics,
                queues,
                self._services,
                self.transports,
                self._certificate_check,
                statistics,
                self._actions,
                self._drain,
                self._shown,
                self._source_files,
                self._can_reload,
            )
            reload = self._make_reload(services)
            self._services.reload_configuration = reload.run_step
            groups.append(reload.group)
        return groups

    def _provision_actions(self, opened: contextlib.AsyncExitStack) -> None:
        opened.push_async_callback(self._actions.close)
        try:
            self._actions.provision()
        except ActionError as error:
            raise StartError(str(error)) from None

    def _open_topics(
        self,
        opened: contextlib.AsyncExitStack,
        check: Callable[[], None],
        queues: QueueTable | None,
    ) -> OpenTopics:
        """Recover the SOW topics, register them with the engine, and return them.

        Args:
            opened: gets the callback that closes the topics.
            check: called between topics; an exception that it raises ends the start.
            queues: the queues, which can be queried from now on; None if there are none.

        Raises:
            ProvisionError: a file or a key generator cannot be used, or a view's messages not made.
        """
        topics = OpenTopics(self._spec, self._engine, self._lookups, self._post, self._log)
        opened.callback(topics.close)
        if self._spec.sow_stats_interval is not None:
            self._engine.sow_stats.start(self._spec.sow_stats_interval / NANOSECONDS)
        if self._spec.sow:
            columns.warm_up()
        for spec in self._spec.sow:
            check()
            if isinstance(spec, TopicSpec):
                self._supervisor.begin_step(f"records of {spec.name} are read")
                topics.add(topics.open(spec, self._spec.modules))
            elif isinstance(spec, ConflatedTopicSpec | ViewSpec):
                self._create_derived_topic(spec)
            elif queues is not None and (queue := queues.find(spec.message_type, spec.name)):
                self._engine.sow_registry.add_queue(queue.browser.records)
        topics.open_lookups()
        return topics

    def _create_derived_topic(self, spec: ConflatedTopicSpec | ViewSpec) -> None:
        try:
            self._engine.add_derived_topic(spec)
        except BodyError as error:
            raise ProvisionError(spec, f"view {spec.name}: {error}") from None

    def _post(self, call: Callable[[], None]) -> None:
        """Execute a worker thread's callback on the engine's thread."""
        scheduler = self._engine.scheduler

        def make() -> None:
            begun = scheduler.elapsed()
            call()
            scheduler.record_duration(
                scheduler.elapsed() - begun, ("", "what a helper thread has finished")
            )
            self._engine.flush()

        self._loop.call_soon_threadsafe(make)

    async def _open_transports(self, opened: contextlib.AsyncExitStack) -> None:
        opened.push_async_callback(self.transports.close)
        try:
            await self.transports.open()
        except TransportError as error:
            raise StartError(str(error)) from None

    async def _close_sessions(self) -> None:
        for session in list(self._engine.sessions):
            session.close("connection closed")
        while self._engine.sessions_ending:
            await asyncio.sleep(0)  # their time slices
        self._engine.flush()
        await asyncio.sleep(0)  # the event loop passes the flushed bytes to the sockets

    def _write_minidump(self) -> Path | None:
        engine, spec = self._engine, self._spec
        if spec.mini_dump_directory is None:
            return None
        sessions = list(engine.sessions)
        state = {
            "sessions": len(sessions),
            "subscriptions": sum(len(session.subscriptions) for session in sessions),
            "topics": len(engine.topics),
        }
        if self._lag_monitor is not None:
            state.update(self._lag_monitor.state)
        if self._services.anti_entropy is not None:
            state.update(self._services.anti_entropy.history.state)
        statistics = self._services.statistics
        latest = None if statistics is None else statistics.latest
        return write_minidump(
            spec.mini_dump_directory,
            spec.mini_dump_file_mask,
            spec.name,
            state,
            asyncio.all_tasks(self._loop),
            () if latest is None else sizes(latest),
        )

    def _request_stop(self, source: str) -> None:
        self._log.emit("FF-0001", source=source)
        if not self._stop_requested.is_set():
            self._stopping_since_s = time.monotonic()
            self._stop_requested.set()

    def _log_defect(self, _loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        self._log.emit(
            "01-0004", text=context.get("message", ""), error=repr(context.get("exception"))
        )


def _allow_all_open_files() -> None:
    """Raise the soft limit of open files to the hard one: every connection needs a descriptor."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
