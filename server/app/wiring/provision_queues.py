"""Makes the queues of an instance, and recovers them from the transaction log."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from config_schema.spec import QueueSpec
from server.app.wiring.provision import ProvisionError
from server.app.wiring.provision_replication import replicates
from server.queues.topic.checkpoints import QueueCheckpoints
from server.queues.topic.context import QueueServices
from server.queues.topic.delivery_scheduler import DeliveryScheduler
from server.queues.topic.queue_table import QueueTable
from server.queues.topic.recovery import QueueFill, recover_queues
from server.storage.journal import JournalUnreadableError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from config_schema.spec import InstanceSpec
    from server.engine.engine import Engine
    from server.queues.topic.peers import QueuePeers
    from server.queues.topic.queue_topic import QueueTopic
    from server.topics.transaction_log import TransactionLog


class InstanceQueues:
    """The queues of an instance, empty until the log has been read.

    Args:
        spec: the instance.
        engine: its engine.
        log: its transaction log.
        peers: exchanges the messages of queues that instances share.

    Attributes:
        table: the queues; None if there are none.
    """

    def __init__(
        self, spec: InstanceSpec, engine: Engine, log: TransactionLog, peers: QueuePeers
    ) -> None:
        self._spec = spec
        self._engine = engine
        self._log = log
        self._services = QueueServices(
            log,
            engine.topics,
            engine.clock,
            engine.scheduler.queue_task,
            DeliveryScheduler(engine.scheduler),
            engine.log,
            peers,
            spec.group,
            partial(replicates, spec),
        )
        self._checkpoints: QueueCheckpoints | None = None
        specs = [queue for queue in spec.sow if isinstance(queue, QueueSpec)]
        self.table = self._make_table(specs) if specs else None

    def _make_table(self, specs: Sequence[QueueSpec]) -> QueueTable:
        settings = self._engine.settings
        return QueueTable(
            specs, settings.message_types, settings.functions, self._spec.name, self._services
        )

    def recover(self, check: Callable[[], None]) -> None:
        """Recover the queues from the log, and store checkpoints of their progress from now on.

        Args:
            check: called between entries; an exception that it raises ends the recovery.

        Raises:
            ProvisionError: the log cannot be read.
        """
        if self.table is None:
            return
        try:
            begins = recover_queues(self.table, self._log.journal, check, self._engine.log)
        except JournalUnreadableError as error:
            where = self._spec.transaction_log or self._spec
            text = f"TransactionLog: queues not recovered: {error}"
            raise ProvisionError(where, text) from None
        self._checkpoints = self._make_checkpoints(self.table, begins)

    def _make_checkpoints(
        self, queues: QueueTable, begins: Mapping[QueueTopic, int]
    ) -> QueueCheckpoints:
        engine = self._engine
        return QueueCheckpoints(queues, begins, self._log, engine.clock, engine.log)

    def make(self, specs: Sequence[QueueSpec]) -> list[QueueFill]:
        """Make queues, and return what fills them from the log."""
        if specs and self.table is None:
            self.table = self._make_table(())
            self._engine.topics.use_queues(self.table)
        journal = self._log.journal
        return (
            []
            if self.table is None
            else [QueueFill(self.table.make(spec), journal, self._engine.log) for spec in specs]
        )

    def discard(self, fills: Sequence[QueueFill]) -> None:
        """Release queues that have been made, and are not added."""
        for fill in fills:
            if self.table is not None:
                self.table.remove(fill.queue)

    def remove(self, queue: QueueTopic, on_stored: Callable[[], None]) -> None:
        """Remove a queue; its consumers get no more messages, and lose their leases.

        Args:
            queue: the queue.
            on_stored: called when a start would find no state of it.
        """
        if self.table is None or self._checkpoints is None:
            raise AssertionError("a queue that has been added has a table and checkpoints")
        self.table.remove(queue)
        self._engine.sow_registry.remove(queue.browser.records)
        self._checkpoints.remove(queue, on_stored)

    def add(self, filled: Sequence[QueueFill], on_stored: Callable[[], None]) -> None:
        """Add queues that have all messages of the log; topics do not feed them yet.

        Args:
            filled: the queues.
            on_stored: called when a start would find where they begin.
        """
        if not filled or self.table is None:
            on_stored()
            return
        for fill in filled:
            self.table.add(fill.queue)
            fill.queue.finish_recovery()
            self._engine.sow_registry.add_queue(fill.queue.browser.records)
        begins = {fill.queue: fill.begin_txid for fill in filled}
        if self._checkpoints is not None:
            self._checkpoints.add(begins, on_stored)
        else:
            self._log.when_durable(partial(self._begin_checkpoints, self.table, begins, on_stored))

    def _begin_checkpoints(
        self,
        queues: QueueTable,
        begins: Mapping[QueueTopic, int],
        on_stored: Callable[[], None],
    ) -> None:
        self._checkpoints = self._make_checkpoints(queues, begins)
        on_stored()

    def close(self) -> None:
        """Store the last checkpoint; the log must still be open."""
        if self._checkpoints is not None:
            self._checkpoints.close()
