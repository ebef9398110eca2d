"""SOW keys: the identification of the record that a message updates.

A generated key is a 64-bit checksum (XXH3) over the key domain and the values of the key fields,
written in decimal. The same domain and values always give the same key, on any instance; a key
holds no other information.

Source: AMPS User Guide, Understanding SOW Keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import xxhash

from server.expressions import semantics
from server.expressions.numerals import bounded
from server.message_types.base import Extractor, MessageType, Value
from server.message_types.bulk import BulkExtractor, bulk_extractor
from server.message_types.paths import Path
from server.storage.sow.keys.key_column import numbers_of
from server.util.encoding import text_to_bytes

NO_KEY: Final = "18446744073709551615"
"""The key of all messages without one, in a topic that leaves keys to its publishers."""


class KeyRefusedError(Exception):
    """No SOW key can be made for a message, which is therefore not processed."""


class KeySource(Protocol):
    """Maps messages to SOW keys."""

    def key(self, body: bytes, given: str | None) -> str:
        """Return the SOW key of a message.

        Args:
            body: the message, preprocessed.
            given: the key that the publisher provided, if any.

        Raises:
            KeyRefusedError: the message must not be processed.
            RecordStoreError: the data that later keys depend on cannot be stored.
        """


class KeyHash:
    """Makes keys for one key domain from values.

    Args:
        domain: the key domain, by default the topic's name.
    """

    __slots__ = ("_domain_prefix",)

    def __init__(self, domain: str) -> None:
        self._domain_prefix: Final = _domain_prefix(domain)

    def hash_values(self, values: Sequence[Value]) -> str:
        """Return the key for the values of the key fields; they count as texts, NULL as no text.

        Each value but the last is preceded by its length, so that different values never make the
        same text.
        """
        *leading, last = values
        parts = [self._domain_prefix]
        for value in leading:
            octets = semantics.octets(value)
            parts.append(b"-;" if octets is None else b"%d;%b" % (len(octets), octets))
        octets = semantics.octets(last)
        parts.append(b"-" if octets is None else b"=" + octets)
        return str(xxhash.xxh3_64_intdigest(b"".join(parts)))

    def hash_columns(
        self, columns: Sequence[Sequence[Value]], domains: Sequence[str] = ()
    ) -> list[int]:
        """Return the keys for the values of the key fields of many messages, as numbers.

        Args:
            columns: for each key field, its values.
            domains: the key domain of each message; empty if all have the one of this object.
        """
        start: bytes | Sequence[bytes] = self._domain_prefix
        if domains:
            prefixes = {domain: _domain_prefix(domain) for domain in {*domains}}
            start = [prefixes[domain] for domain in domains]
        return numbers_of(start, columns, xxhash.xxh3_64_intdigest, semantics.octets)

    def hash_text(self, text: str) -> str:
        """Return the key for a single text value, as `hash_values` does."""
        return str(xxhash.xxh3_64_intdigest(self._domain_prefix + b"=" + text_to_bytes(text)))


def _domain_prefix(domain: str) -> bytes:
    """Return the bytes of a key domain, which precede the values in each hash."""
    return text_to_bytes(domain) + b"\0"


class FieldKeys:
    """Keys from fields of the message; a key that the publisher provides is ignored.

    A message without any of the fields is not refused: its NULLs make a key as other values do,
    so that all such messages share one record.

    Attributes:
        null_key: that key, as a number.
    """

    __slots__ = ("_extract", "_extract_all", "_hash", "_is_single", "null_key")

    def __init__(self, domain: str, message_type: MessageType, fields: Sequence[Path]) -> None:
        self._hash = KeyHash(domain)
        self._extract: Extractor = message_type.extractor(fields)
        self._extract_all: BulkExtractor = bulk_extractor(message_type, fields)
        self._is_single = len(fields) == 1
        self.null_key: Final = int(self._hash.hash_values([None] * len(fields)))

    def key(self, body: bytes, given: str | None) -> str:  # noqa: ARG002 - see above
        """See `KeySource.key`."""
        values = self._extract(body)
        if self._is_single:
            value = values[0]
            if value.__class__ is str and value:
                return self._hash.hash_text(value)
            if value.__class__ is int:
                return self._hash.hash_text(str(bounded(value)))
        return self._hash.hash_values(values)

    def key_numbers(self, bodies: Sequence[bytes], domains: Sequence[str] = ()) -> list[int]:
        """Return the SOW keys of messages, at least one, as numbers.

        Args:
            bodies: the messages.
            domains: the key domain of each; empty if all have the one of this object.
        """
        return self._hash.hash_columns(self._extract_all(bodies), domains)


EVENTS: Final = "/AMPS/"
"""The prefix of the names of the server's event topics."""


def nested_in_event(topic: str, fields: Sequence[Path]) -> list[Path]:
    """Return the paths of event fields in types that nest them in one named after the topic."""
    root = topic.rpartition("/")[2]
    return [(root, *field) for field in fields]


class EventKeys:
    """Keys of an event topic; the fields may be given without the enclosing one.

    The guide's keys of events in JSON and XML are `/topic`, `/client_name` and `/Topic`, though the
    body is `{"SOWStats":{"topic":...}}` and the like; in FIX it holds the fields themselves.

    Args:
        domain: the key domain.
        message_type: the topic's message type.
        fields: as the configuration gives them.
        topic: the topic's name.

    Source: AMPS User Guide, Persisting Event Topics.
    """

    __slots__ = ("_extract", "_hash")

    def __init__(
        self, domain: str, message_type: MessageType, fields: Sequence[Path], topic: str
    ) -> None:
        self._hash = KeyHash(domain)
        self._extract = message_type.extractor((*fields, *nested_in_event(topic, fields)))

    def key(self, body: bytes, given: str | None) -> str:  # noqa: ARG002 - the fields say it
        """See `KeySource.key`."""
        values = self._extract(body)
        half = len(values) // 2
        pairs = zip(values[:half], values[half:], strict=True)
        return self._hash.hash_values([inner if outer is None else outer for outer, inner in pairs])


class PublisherKeys:
    """Keys that publishers provide, used unchanged."""

    def key(self, body: bytes, given: str | None) -> str:  # noqa: ARG002 - the body does not matter
        """See `KeySource.key`."""
        return given or NO_KEY


def key_hash(key: str) -> int:
    """Return a key as an unsigned 64-bit integer: itself if it is one, else its text's checksum."""
    if key.isascii() and key.isdigit() and len(key) <= len(NO_KEY):
        number = int(key)
        if number <= int(NO_KEY) and str(number) == key:
            return number
    return xxhash.xxh3_64_intdigest(text_to_bytes(key))
