"""Topics that keep state: SOW topics, views, conflated topics and queues."""

from dataclasses import dataclass
from typing import Literal

from config_schema.problems import Location
from config_schema.spec.common import ModuleUse, TopicRef


@dataclass(frozen=True, slots=True)
class HistorySpec:
    """The time (`window`) and resolution (`granularity`) of kept past states; nanoseconds."""

    window: int
    granularity: int
    location: Location


class _NamedTopic:
    """A topic that other elements refer to."""

    __slots__ = ()
    name: str
    message_type: str

    @property
    def ref(self) -> TopicRef:
        """The name and message type under which others refer to this topic."""
        return TopicRef(self.name, self.message_type)


@dataclass(frozen=True, slots=True)
class TopicSpec(_NamedTopic):
    """One SOW Topic.

    `file_name` has %n expanded and is None for topics that live in memory only. `expiration` is the
    default lifetime in nanoseconds; with `expiration_enabled` and no default, messages bring their
    own. A `recovery_point` that is a time is in nanoseconds since 1970. `pattern` turns the topic
    into the store of every topic that it matches.
    `name_has_regex_characters` asks for the start-up warning that the name is taken literally.
    Source: AMPS User Guide, Configuring Topics in a SOW.
    """

    name: str
    message_type: str
    keys: tuple[str, ...]
    key_domain: str
    key_generator: ModuleUse | None
    file_name: str | None
    durability: Literal["persistent", "transient"]
    recovery_point: Literal["epoch", "now"] | int
    expiration_enabled: bool
    expiration: int | None
    slab_size: int
    initial_slab_count: int
    expected_key_count_hint: int | None
    hash_indexes: tuple[tuple[str, ...], ...]
    indexes: tuple[str, ...]
    history: HistorySpec | None
    preprocessing: tuple[str, ...]
    enrichment: tuple[str, ...]
    pattern: str | None
    name_has_regex_characters: bool
    location: Location


@dataclass(frozen=True, slots=True)
class JoinField:
    """One side of a join: a field (as written, e.g. "/id") of a topic."""

    topic: TopicRef
    field: str


@dataclass(frozen=True, slots=True)
class JoinSpec:
    """One Join: records meet where `left` and `right` are equal as strings."""

    left: JoinField
    right: JoinField
    location: Location


@dataclass(frozen=True, slots=True)
class ViewSpec(_NamedTopic):
    """One View. `underlying` names its source topics in order of appearance; one without joins.

    Source: AMPS User Guide, Configuring Views in a SOW.
    """

    name: str
    message_type: str
    underlying: tuple[TopicRef, ...]
    joins: tuple[JoinSpec, ...]
    projection: tuple[str, ...]
    grouping: tuple[str, ...]
    filter: str | None
    key_domain: str
    inline_conflation: bool
    join_null_equivalency: bool
    hash_indexes: tuple[tuple[str, ...], ...]
    name_has_regex_characters: bool
    location: Location


@dataclass(frozen=True, slots=True)
class ConflatedTopicSpec(_NamedTopic):
    """One ConflatedTopic; `interval` in nanoseconds. `topic_format` is set over a Pattern.

    Source: AMPS User Guide, Configuring Conflated Topics in a SOW.
    """

    name: str
    message_type: str
    underlying: TopicRef
    interval: int
    filter: str | None
    hash_indexes: tuple[tuple[str, ...], ...]
    enrichment: tuple[str, ...]
    topic_format: str | None
    name_has_regex_characters: bool
    location: Location


@dataclass(frozen=True, slots=True)
class QueueSpec(_NamedTopic):
    """One Queue, LocalQueue or GroupLocalQueue (`kind`).

    `underlying_topic` is a regular expression when `underlying_is_regex`. Intervals are
    nanoseconds; None means no lease end, no backlog limit, no expiration. `initial_owner` is set
    for group-local queues only. Source: AMPS User Guide, Configuring Queues in a SOW.
    """

    kind: Literal["Queue", "LocalQueue", "GroupLocalQueue"]
    name: str
    message_type: str
    underlying_topic: str
    underlying_is_regex: bool
    default_publish_target: str
    lease_period: int | None
    semantics: Literal["at-least-once", "at-most-once"]
    max_backlog: int | None
    max_per_subscription_backlog: int
    expiration: int | None
    expiration_model: Literal["queue", "latest", "earliest", "default"]
    filter: str | None
    recovery_point: str
    fairness_model: Literal["fast", "round-robin", "proportional"]
    leasing: Literal["strict", "sublet"]
    max_deliveries: int
    max_cancels: int
    retry_delay: int | None
    max_retry_delay: int
    dead_letter_topic: str | None
    priority: str | None
    barrier_expression: str | None
    order_key: str | None
    file_backed_metadata: bool
    target_queue_depth: int | None
    deferred_ack_expiration: int
    initial_owner: str | None
    group_local_queue_domain: str | None
    name_has_regex_characters: bool
    location: Location


SowSpec = TopicSpec | ViewSpec | QueueSpec | ConflatedTopicSpec
