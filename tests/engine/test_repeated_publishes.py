"""Headers that a session remembers mean what they mean when they are read with care."""

from __future__ import annotations

import struct
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.engine.support import Core
from tests.support.chances import examples

HEADERS = st.sampled_from(
    [
        '{"c":"publish","t":"a"}',
        '{"c":"publish","t":"b"}',
        '{"c":"publish","t":"a","s":%s}',
        '{"c":"publish","t":"a","s":%s,"a":"processed"}',
        '{"c":"p","t":"b","a":"persisted,processed","s":%s}',
        '{"c":"p","t":"a","s":%s,"a":"received,processed"}',
        '{"c":"p","t":"a","cid":"1","s":%s,"a":"processed"}',
        '{"s":%s,"c":"p","t":"a","a":"processed"}',
        '{"c":"p","t":"a","s":1,"a":"processed","s":%s}',
        '{"c":"p","t":"a,\\"s\\":1","s":%s,"a":"processed"}',
        '{"c":"p","t":"a","s":%s,"x":"mark"}',
        '{"c":"p","t":"a","a":"processed","x":%v,"s":%s}',
        '{"c":"p","t":"a","x":%v,"s":%s,"cid":"1","a":"processed"}',
        '{"c":"p","t":"b","k":%v,"x":%v}',
        '{"c":"p","t":"b","e":%s,"a":"processed"}',
        '{"c":"p","t":"b","e":%s,"s":7,"x":%v,"a":"processed"}',
        '{"c":"p","t":"a","x":%v,"x":%v,"s":%s}',
        '{"c":"p","t":"a","u":{"c":1,"x":%v},"s":%s}',
        '{"c":"p","t":"a,\\"x\\":\\"1\\"","x":%v}',
        '{"c":"p","t":"a,","x":%v}',
        '{"c":"p","t":%v,"x":"1"}',
    ]
)
VALUES = st.sampled_from(
    ['"m1"', '"m2"', '"a"', '"b","x":"3"', '"m\\u0041"', '"m\\"b"', '""', "null", "7", '"\u00e9"']
    + ['"%s"' % ("m" * size) for size in (450, 600)]
)
SEQUENCES = st.one_of(
    st.integers(0, 10**12).map(str),
    st.sampled_from(["", "007", "-1", '"5"', "1.5", "1e3", "true", "9" * 18, "9" * 19, "9" * 30]),
)
PUBLISHES = st.lists(
    st.builds(
        lambda header, s, v: header.replace("%s", s).replace("%v", v), HEADERS, SEQUENCES, VALUES
    )
)

Frames = list[tuple[dict[str, Any], bytes]]


def run(publishes: list[str], pieces: int = 1) -> tuple[Frames, Frames, bool]:
    """Send publishes in some pieces: what the subscriber gets, what the publisher gets, its end."""
    core = Core()
    subscriber, publisher = core.log_on("subscriber"), core.log_on("publisher")
    subscriber.send({"c": "subscribe", "sub_id": "1", "t": "^[ab]"})
    contents = [header.encode() + b"body" for header in publishes]
    stream = b"".join(struct.pack(">I", len(one)) + one for one in contents)
    size = len(stream) // pieces + 1
    for start in range(0, len(stream), size):
        publisher.send_bytes(stream[start : start + size])
    return subscriber.take_frames(), publisher.take_frames(), publisher.hung_up


@settings(max_examples=examples(100))
@given(PUBLISHES, st.integers(1, 9))
@example([f'{{"c":"publish","t":"a","s":{n},"a":"processed"}}' for n in (8, 9, 10, 99, 100, 7)], 1)
@example([f'{{"c":"publish","t":"a","s":{n},"a":"processed"}}' for n in range(8, 102)], 3)
@example(['{"c":"p","t":"a","s":1,"a":"processed"}', '{"c":"p","t":"a","s":01,"a":"processed"}'], 1)
@example([f'{{"c":"p","t":"a","a":"processed","x":"m{n}","s":{n}}}' for n in range(1, 9)], 1)
@example([f'{{"c":"p","t":"a","a":"processed","e":{n},"s":5}}' for n in (0, 7, 10**9, 99)], 1)
def test_publishes_together_do_what_they_do_alone(publishes: list[str], pieces: int) -> None:
    """Each publish is obeyed by a session that remembers nothing, then all by one session."""
    delivered: Frames = []
    answered: Frames = []
    hung_up = False
    for publish in publishes:
        deliveries, answers, hung_up = run([publish])
        delivered += deliveries
        answered += answers
        if hung_up:
            break
    assert run(publishes, pieces) == (delivered, answered, hung_up)
