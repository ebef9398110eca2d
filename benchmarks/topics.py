"""Topics with records, for measurements without a server."""

from __future__ import annotations

from config_schema.problems import Location
from config_schema.spec import TopicSpec


def topic_spec(name: str, hash_indexes: tuple[tuple[str, ...], ...] = ()) -> TopicSpec:
    """The description of a JSON topic whose records are in memory, by /id."""
    return TopicSpec(
        name=name,
        message_type="json",
        keys=("/id",),
        key_domain=name,
        key_generator=None,
        file_name=None,
        durability="transient",
        recovery_point="epoch",
        expiration_enabled=False,
        expiration=None,
        slab_size=1 << 20,
        initial_slab_count=1,
        expected_key_count_hint=None,
        hash_indexes=hash_indexes,
        indexes=(),
        history=None,
        preprocessing=(),
        enrichment=(),
        pattern=None,
        name_has_regex_characters=False,
        location=Location("benchmark.xml", 1),
    )
