"""Every way to a message: what is asked for, of which topics. The manual has the same table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

PLAIN: Final = ("adhoc", "sow", "logical", "view", "conflated", "logged", "past")
RECORDS: Final = ("sow", "logical", "view", "conflated", "past")
LOGGED: Final = ("logged", "past")
GROUPS: Final = "projection=[/id,/desk,MAX(/secret) AS /secret],grouping=[/id]"

KINDS: Final = {
    "adhoc": "topics that keep nothing",
    "sow": "topics with records",
    "logical": "topics of a Pattern",
    "view": "views",
    "conflated": "conflated topics",
    "logged": "topics in the transaction log",
    "past": "topics with History",
    "queue": "queues",
}
"""The kinds of topics, by the last part of their names; and what the table calls them."""


@dataclass(frozen=True)
class Way:
    """A way to messages.

    Attributes:
        what: what is asked for, as the table says it.
        header: the command, without its topic.
        kinds: the kinds of topics that it is for.
        sees_before: whether messages are sent that were there before.
        sees_after: whether those are that come later.
        is_regex: whether the topic is asked for as a regular expression.
        by_keys: whether records are asked for by their SOW keys.
        probes: whether it asks for what is hidden, so that nothing comes where it is.
    """

    what: str
    header: dict[str, Any] = field(hash=False)
    kinds: Sequence[str]
    sees_before: bool = False
    sees_after: bool = False
    is_regex: bool = False
    by_keys: bool = False
    probes: bool = False


def _both(what: str, header: dict[str, Any], kinds: Sequence[str], **more: Any) -> Way:
    return Way(what, header, kinds, sees_before=True, sees_after=True, **more)


SUBSCRIBE: Final = {"c": "subscribe"}
SOW: Final = {"c": "sow"}
FOLLOW: Final = {"c": "sow_and_subscribe"}
PROBE: Final = {"filter": "/secret LIKE 'hush'"}
WAYS: Final = (
    Way("`subscribe`", SUBSCRIBE, PLAIN, sees_after=True),
    Way("`subscribe` to a regular expression", SUBSCRIBE, PLAIN, sees_after=True, is_regex=True),
    Way(
        "`subscribe` with a filter on a hidden field",
        SUBSCRIBE | PROBE,
        PLAIN,
        sees_after=True,
        probes=True,
    ),
    Way(
        "`subscribe` with a select list",
        SUBSCRIBE | {"o": "select=[-/,+/id,+/secret]"},
        PLAIN,
        sees_after=True,
    ),
    Way(
        "`subscribe`, conflated",
        SUBSCRIBE | {"o": "conflation=50ms,conflation_key=[/id]"},
        PLAIN,
        sees_after=True,
    ),
    Way("`delta_subscribe`", {"c": "delta_subscribe"}, PLAIN, sees_after=True),
    Way("`sow`", SOW, RECORDS, sees_before=True),
    Way("`sow` of a regular expression", SOW, RECORDS, sees_before=True, is_regex=True),
    Way("`sow` by SOW keys", SOW, RECORDS, sees_before=True, by_keys=True),
    Way(
        "`sow` with a filter on a hidden field", SOW | PROBE, RECORDS, sees_before=True, probes=True
    ),
    Way(
        "`sow`, ordered by a hidden field, with `top_n`",
        SOW | {"orderby": "/secret DESC", "top_n": 1000},
        RECORDS,
        sees_before=True,
    ),
    Way("`sow`, aggregated", SOW | {"o": GROUPS}, RECORDS, sees_before=True),
    Way("`sow` of the past", SOW | {"bm": "20990101T000000Z"}, ("past",), sees_before=True),
    _both("`sow_and_subscribe`", FOLLOW, RECORDS),
    _both("`sow_and_subscribe` to a regular expression", FOLLOW, RECORDS, is_regex=True),
    _both("`sow_and_subscribe`, by pages", FOLLOW | {"o": "top_n=1000,skip_n=0"}, RECORDS),
    _both("`sow_and_subscribe`, aggregated", FOLLOW | {"o": GROUPS}, RECORDS),
    _both(
        "`sow_and_subscribe`, conflated, with `oof`",
        FOLLOW | {"o": "conflation=50ms,oof,replace"},
        RECORDS,
    ),
    _both(
        "`sow_and_subscribe`, by pages of groups",
        FOLLOW | {"o": f"{GROUPS},top_n=1000,skip_n=0"},
        RECORDS,
    ),
    _both("`sow_and_subscribe` with a bookmark", FOLLOW | {"bm": "0"}, ("past",)),
    _both(
        "`sow_and_subscribe` with a bookmark, by pages",
        FOLLOW | {"bm": "0", "o": "top_n=1000,skip_n=0,oof"},
        ("past",),
    ),
    _both("`sow_and_delta_subscribe`", {"c": "sow_and_delta_subscribe"}, RECORDS),
    _both("`subscribe` with a bookmark", SUBSCRIBE | {"bm": "0"}, LOGGED),
    _both(
        "`subscribe` with a bookmark, to a regular expression",
        SUBSCRIBE | {"bm": "0"},
        LOGGED,
        is_regex=True,
    ),
    _both(
        "`subscribe` with a bookmark, conflated",
        SUBSCRIBE | {"bm": "0", "o": "conflation=50ms,conflation_key=[/id]"},
        LOGGED,
    ),
    _both("`subscribe` with a bookmark, `live`", SUBSCRIBE | {"bm": "0", "o": "live"}, LOGGED),
    _both("`subscribe` to a queue", SUBSCRIBE | {"o": "max_backlog=1000"}, ("queue",)),
    _both(
        "`subscribe` to queues by a regular expression",
        SUBSCRIBE | {"o": "max_backlog=1000"},
        ("queue",),
        is_regex=True,
    ),
    _both("`sow_and_subscribe` to a queue", FOLLOW | {"o": "max_backlog=1000"}, ("queue",)),
    Way("`sow` of a queue", SOW, ("queue",), sees_before=True),
    Way("`sow` of a queue, aggregated", SOW | {"o": GROUPS}, ("queue",), sees_before=True),
    _both("`sow_and_subscribe` to a queue, aggregated", FOLLOW | {"o": GROUPS}, ("queue",)),
)


def table() -> str:
    """The table of docs/security.md, between its head and the line after it."""
    lines = [
        f"| {way.what} | {', '.join(KINDS[kind] for kind in way.kinds)} | {_without(way)} |"
        f" {_masked(way)} |"
        for way in WAYS
    ]
    return "\n".join(lines)


def _without(way: Way) -> str:
    return "passed over" if way.is_regex else "refused"


def _masked(way: Way) -> str:
    return "nothing: hidden fields are NULL" if way.probes else "without hidden fields"
