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
from server.queues.topic.recovery import recover_queues
from server.storage.journal import JournalUnreadableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from config_schema.spec import InstanceSpec, TransactionLogSpec
    from server.engine.engine import Engine
    from server.queues.topic.peers import QueuePeers
    from server.topics.transaction_log import TransactionLog


def provision_queues(
    spec: InstanceSpec, engine: Engine, log: TransactionLog, peers: QueuePeers
) -> QueueTable | None:
    """Create the queues, empty until the log has been read; return None if there are none.

    Args:
        spec: the instance.
        engine: its engine.
        log: its transaction log.
        peers: exchanges the messages of queues that instances share.
    """
    specs = [queue for queue in spec.sow if isinstance(queue, QueueSpec)]
    if not specs:
        return None
    settings = engine.settings
    services = QueueServices(
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
    return QueueTable(specs, settings.message_types, settings.functions, spec.name, services)


def recover_queue_progress(
    queues: QueueTable,
    spec: TransactionLogSpec,
    log: TransactionLog,
    engine: Engine,
    check: Callable[[], None],
) -> QueueCheckpoints:
    """Recover queues from the log, and store checkpoints of their progress from now on.

    Args:
        queues: the queues.
        spec: the configuration of the log.
        log: the log.
        engine: the engine.
        check: called between entries; an exception that it raises ends the recovery.

    Returns:
        The checkpoints, which must be closed before the log.

    Raises:
        ProvisionError: the log cannot be read.
    """
    try:
        begins = recover_queues(queues, log.journal, check, engine.log)
    except JournalUnreadableError as error:
        raise ProvisionError(spec, f"TransactionLog: queues not recovered: {error}") from None
    return QueueCheckpoints(queues, begins, log, engine.clock, engine.log)
