"""Queues of all three kinds.

Source: AMPS User Guide, Configuring Queues in a SOW.
"""

import re
from typing import Final, Literal, get_args

from config_schema.catalogue import ExpressionKind
from config_schema.compile.reader import COUNT, INTERVAL, ElementReader, did_you_mean
from config_schema.compile.scope import Scope
from config_schema.compile.topics import compile_expiration
from config_schema.regex import has_regex_characters
from config_schema.spec import QueueSpec
from config_schema.units import quoted

Semantics = Literal["at-least-once", "at-most-once"]
ExpirationModel = Literal["queue", "latest", "earliest", "default"]
Fairness = Literal["fast", "round-robin", "proportional"]
Leasing = Literal["strict", "sublet"]
QueueKind = Literal["Queue", "LocalQueue", "GroupLocalQueue"]

SEMANTICS: Final[tuple[Semantics, ...]] = get_args(Semantics)
EXPIRATION_MODELS: Final[tuple[ExpirationModel, ...]] = get_args(ExpirationModel)
FAIRNESS: Final[tuple[Fairness, ...]] = get_args(Fairness)
LEASING: Final[tuple[Leasing, ...]] = get_args(Leasing)
KINDS: Final[tuple[QueueKind, ...]] = get_args(QueueKind)

_RECOVERY_POINTS: Final = ("epoch", "now", "creation")
_BOOKMARK: Final = re.compile(r"\d+\|\d+\|[0-9TZ.]*(,\d+\|\d+\|[0-9TZ.]*)*")
_TIMESTAMP: Final = re.compile(r"\d{8}T\d{6}(\.\d{1,9})?Z?")


def compile_queue(reader: ElementReader, scope: Scope) -> QueueSpec:
    """Compile one Queue, LocalQueue or GroupLocalQueue of the SOW section."""
    name = reader.text("Name") or ""
    message_type = scope.message_type(reader)
    semantics = reader.choice("Semantics", SEMANTICS, "at-least-once")
    underlying, target = _topics(reader, name, message_type, scope)
    _check_order(reader)
    _, expiration = compile_expiration(reader)
    return QueueSpec(
        kind=next(kind for kind in KINDS if kind == reader.node.tag),
        name=name,
        message_type=message_type,
        underlying_topic=underlying,
        underlying_is_regex=_is_expression(reader, scope),
        default_publish_target=target,
        lease_period=reader.quantity("LeasePeriod", INTERVAL, minimum="1ns"),
        semantics=semantics,
        max_backlog=reader.quantity("MaxBacklog", COUNT, minimum="1"),
        max_per_subscription_backlog=reader.quantity(
            "MaxPerSubscriptionBacklog", COUNT, "1", minimum="1"
        ),
        expiration=expiration,
        expiration_model=reader.choice("ExpirationModel", EXPIRATION_MODELS, "default"),
        filter=reader.expression("Filter", ExpressionKind.STABLE_FILTER),
        recovery_point=_recovery_point(reader),
        fairness_model=_fairness(reader, semantics),
        leasing=reader.choice("Leasing", LEASING, "sublet"),
        max_deliveries=reader.quantity("MaxDeliveries", COUNT, "0"),
        max_cancels=reader.quantity("MaxCancels", COUNT, "0"),
        retry_delay=reader.quantity("RetryDelay", INTERVAL),
        max_retry_delay=reader.quantity("MaxRetryDelay", INTERVAL, "1h"),
        dead_letter_topic=_dead_letter_topic(reader, name, message_type, underlying, scope),
        priority=reader.expression("Priority", ExpressionKind.VALUE),
        barrier_expression=reader.expression("BarrierExpression", ExpressionKind.STABLE_FILTER),
        order_key=reader.expression("OrderKey", ExpressionKind.VALUE),
        file_backed_metadata=reader.flag("FileBackedMetadata", default=False),
        target_queue_depth=reader.quantity("TargetQueueDepth", COUNT, minimum="1000"),
        deferred_ack_expiration=reader.quantity("DeferredAckExpiration", INTERVAL, "1d"),
        initial_owner=_initial_owner(reader),
        group_local_queue_domain=reader.text("GroupLocalQueueDomain"),
        name_has_regex_characters=has_regex_characters(name),
        location=reader.location,
    )


def _topics(reader: ElementReader, name: str, message_type: str, scope: Scope) -> tuple[str, str]:
    """Return the underlying topic, and the topic that publishes to the queue go to."""
    underlying = reader.text("UnderlyingTopic") or name
    target = reader.text("DefaultPublishTarget")
    if not _is_expression(reader, scope):
        _require_journal(reader, underlying, message_type, "UnderlyingTopic", scope)
        if target is not None and target != underlying:
            reader.error(
                f"{quoted(target)} is not in the queue, whose topic is {quoted(underlying)}",
                tag="DefaultPublishTarget",
            )
        return underlying, underlying
    reader.pattern("UnderlyingTopic")
    if target is None:
        reader.error(
            "is missing but required, because UnderlyingTopic is a regular expression",
            "name the topic that a publish to the queue goes to",
            tag="DefaultPublishTarget",
        )
        return underlying, ""
    if not scope.matches(underlying, target):
        reader.error(
            f"{quoted(target)} is not in the queue: "
            f"the UnderlyingTopic {quoted(underlying)} does not match it",
            tag="DefaultPublishTarget",
        )
    else:
        _require_journal(reader, target, message_type, "DefaultPublishTarget", scope)
    return underlying, target


def _is_expression(reader: ElementReader, scope: Scope) -> bool:
    return scope.is_pattern(reader.text("UnderlyingTopic") or "")


def _dead_letter_topic(
    reader: ElementReader, name: str, message_type: str, underlying: str, scope: Scope
) -> str | None:
    """Return the topic for dead letters, which must not come back by themselves."""
    topic = reader.text("DeadLetterTopic")
    if topic is None:
        return None
    if topic == name:
        reader.error(
            f"{quoted(topic)} is the queue itself: expected another topic for dead letters",
            tag="DeadLetterTopic",
        )
    elif topic == underlying or (
        _is_expression(reader, scope) and scope.matches(underlying, topic)
    ):
        reader.error(
            f"{quoted(topic)} feeds this queue (UnderlyingTopic {quoted(underlying)}): "
            "dead letters would return to the queue at once",
            tag="DeadLetterTopic",
        )
    else:
        _require_journal(reader, topic, message_type, "DeadLetterTopic", scope)
    return topic


def _require_journal(
    reader: ElementReader, topic: str, message_type: str, tag: str, scope: Scope
) -> None:
    if not topic or message_type not in scope.message_types:
        return
    if scope.is_journaled(topic, message_type):
        return
    reader.error(
        f"topic {quoted(topic)} of type {quoted(message_type)} is not in the transaction log, "
        + (
            "where dead letters are kept"
            if tag == "DeadLetterTopic"
            else "from which a queue takes its messages"
        ),
        did_you_mean(
            topic,
            [ref.name for ref in scope.journaled if ref.message_type == message_type],
        )
        or "add it to TransactionLog as a Topic with this Name and MessageType",
        tag=tag,
    )


def _check_order(reader: ElementReader) -> None:
    if reader.has("Priority") and reader.has("BarrierExpression"):
        reader.error("cannot be combined with Priority", tag="BarrierExpression")
    for tag in ("Priority", "BarrierExpression"):
        if reader.has(tag) and reader.has("TargetQueueDepth"):
            reader.error(
                f"cannot be combined with {tag}, which needs every message of the queue",
                tag="TargetQueueDepth",
            )


def _fairness(reader: ElementReader, semantics: Semantics) -> Fairness:
    if semantics == "at-least-once":
        return reader.choice("FairnessModel", FAIRNESS, "proportional")
    reader.warn_no_effect(
        ("LeasePeriod", "Leasing"), "at-most-once removes messages as they are sent"
    )
    model = reader.choice("FairnessModel", FAIRNESS, "round-robin")
    if model != "round-robin":
        reader.error(
            f"{quoted(model)} needs a queue that is at-least-once: "
            "the only model of at-most-once is round-robin",
            tag="FairnessModel",
        )
    return model


def _recovery_point(reader: ElementReader) -> str:
    text = reader.text("RecoveryPoint") or "epoch"
    if text.lower() in _RECOVERY_POINTS:
        return text.lower()
    if not (_BOOKMARK.fullmatch(text) or _TIMESTAMP.fullmatch(text)):
        reader.error(
            f"{quoted(text)} is not a point of recovery: expected {', '.join(_RECOVERY_POINTS)}, "
            "a bookmark, or a time such as 20260131T093000Z",
            did_you_mean(text, _RECOVERY_POINTS),
            tag="RecoveryPoint",
        )
    return text


def _initial_owner(reader: ElementReader) -> str | None:
    if reader.node.tag == "GroupLocalQueue":
        return reader.required("InitialOwner")
    for tag in ("InitialOwner", "GroupLocalQueueDomain"):
        if reader.has(tag):
            reader.error(f"is for GroupLocalQueue, and this is a {reader.node.tag}", tag=tag)
    return None
