"""Queues of an engine without sockets."""

from __future__ import annotations

from collections.abc import Mapping

from config_schema.problems import Location
from config_schema.spec import QueueSpec
from server.expressions import BUILTINS
from server.queues.topic.context import QueueServices
from server.queues.topic.delivery_scheduler import DeliveryScheduler
from server.queues.topic.peers import QueuePeers
from server.queues.topic.queue_table import QueueTable
from server.queues.topic.recovery import recover_queues
from tests.engine.support import Core


def serve_queues(core: Core, queues: Mapping[str, str]) -> None:
    """Give an engine with a log some queues, each with the messages of a topic, by its name."""
    specs = [
        QueueSpec(
            kind="Queue",
            name=name,
            message_type="json",
            underlying_topic=topic,
            underlying_is_regex=False,
            default_publish_target=topic,
            lease_period=None,
            semantics="at-least-once",
            max_backlog=None,
            max_per_subscription_backlog=100,
            expiration=None,
            expiration_model="default",
            filter="/skip IS NULL",
            recovery_point="epoch",
            fairness_model="fast",
            leasing="sublet",
            max_deliveries=0,
            max_cancels=0,
            retry_delay=None,
            max_retry_delay=0,
            dead_letter_topic="dead",
            priority=None,
            barrier_expression=None,
            order_key=None,
            file_backed_metadata=False,
            target_queue_depth=None,
            deferred_ack_expiration=86_400_000_000_000,
            initial_owner=None,
            group_local_queue_domain=None,
            name_has_regex_characters=False,
            location=Location("config.xml", 1),
        )
        for name, topic in queues.items()
    ]
    engine = core.engine
    services = QueueServices(
        core.transaction_log,
        engine.topics,
        core.clock,
        engine.scheduler.queue_task,
        DeliveryScheduler(engine.scheduler),
        core.log,
        QueuePeers(),
        "group",
        lambda message_type, name: False,
    )
    table = QueueTable(specs, core.types, BUILTINS, "name", services)
    engine.topics.use_queues(table)
    recover_queues(table, core.transaction_log.journal, lambda: None, core.log)
