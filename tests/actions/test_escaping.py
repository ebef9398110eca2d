"""Values are escaped by the kind of place that they stand in, in every option that takes them."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actions.catalogue import DO_MODULES, IF_MODULES
from actions.context import ActionContext
from actions.module import StepError
from actions.value_escapes import TEMPLATES, body_template
from config_schema.catalogue import ValueKind
from server.message_types.registry import MessageTypes
from server.util.encoding import text_to_bytes
from tests.actions.support import Bench, with_records

OTHERS = {
    ValueKind.FILTER: "actions/expressions.py",
    ValueKind.CONDITION: "actions/expressions.py",
    ValueKind.ASSIGNMENT: "actions/expressions.py",
    ValueKind.BODY: "body_template",
    ValueKind.NAME: "takes no variables",
    ValueKind.CHOICE: "takes no variables",
}
"""Kinds of options with a mechanism of their own."""


def test_every_kind_of_option_of_a_step_has_a_rule_for_escaping() -> None:
    kinds = {
        option.value
        for rule in (*DO_MODULES.values(), *IF_MODULES.values())
        for option in rule.options
    }
    assert kinds <= set(TEMPLATES) | set(OTHERS)


def context(value: str, **more: str) -> ActionContext:
    values = {"X": value, **more}
    return ActionContext("i", 0.0, {name: text_to_bytes(text) for name, text in values.items()}, "")


FAILS = None

PLACES = [
    (ValueKind.FILE_PATTERN, "/s/{{X}}/*.tmp", "ann", "/s/ann/*.tmp"),
    (ValueKind.FILE_PATTERN, "/s/{{X}}/*.tmp", "a*b?[c]", "/s/a[*]b[?][[]c]/*.tmp"),
    (ValueKind.FILE_PATTERN, "/s/{{X}}/*.tmp", "../precious", FAILS),
    (ValueKind.FILE_PATTERN, "/s/{{X}}/*.tmp", "a/b", FAILS),
    (ValueKind.FILE_PATTERN, "/s/{{X}}/*.tmp", "..", FAILS),
    (ValueKind.FILE_PATTERN, "/s/{{X}}/*.tmp", ".", FAILS),
    (ValueKind.FILE_PATTERN, "/s/{{X}}/*.tmp", "", FAILS),
    (ValueKind.FILE_PATTERN, "/s/.{{X}}/*.tmp", ".", FAILS),
    (ValueKind.FILE_PATTERN, "/s/a{{X}}/*.tmp", "..", "/s/a../*.tmp"),
    (ValueKind.FILE_PATTERN, "/s/{{X}}{{Y}}/*", ".", FAILS),
    (ValueKind.FILE_PATTERN, "/s/{{X}}/*", "a\0b", FAILS),
    (ValueKind.FILE_PATTERN, "{{X}}", "/etc/*", FAILS),
    (ValueKind.FILE_PATTERN, "{{AMPS_MINIDUMP_PATH}}*", "", "/d[*]/m*"),
    (ValueKind.FILE, "/data/{{X}}", "a*b", "/data/a*b"),
    (ValueKind.FILE, "/data/{{X}}", "../a", FAILS),
    (ValueKind.STORED_TOPIC_PATTERN, "orders", "", "orders"),
    (ValueKind.STORED_TOPIC_PATTERN, "or.*", "", "or.*"),
    (ValueKind.STORED_TOPIC_PATTERN, "{{X}}", "a|b.*", "a|b.*"),  # a name: see below
    (ValueKind.STORED_TOPIC_PATTERN, "^{{X}}_.*$", "a|b", r"^a\|b_.*$"),
    (ValueKind.ORDER_BY, "/date {{X}}", "DESC", "/date DESC"),
    (ValueKind.ORDER_BY, "/{{X}} DESC", "a/b", "/a/b DESC"),
    (ValueKind.ORDER_BY, "/date {{X}}", "DESC, /secret", FAILS),
    (ValueKind.ORDER_BY, "{{X}}", "/a DESC, /b", "/a DESC, /b"),
    (ValueKind.SOW_OPTIONS, "skip_n={{X}}", "3", "skip_n=3"),
    (ValueKind.SOW_OPTIONS, "skip_n={{X}}", "3,projection=[/secret]", FAILS),
    (ValueKind.ARGUMENTS, "/out/{{X}}", "2026-11-28T10:00:00", "/out/2026-11-28T10:00:00"),
    (ValueKind.ARGUMENTS, "/out/{{X}}", "../../etc", FAILS),
    (ValueKind.ARGUMENTS, "/out/{{X}}", "..", FAILS),
    (ValueKind.ARGUMENTS, "/owner = '{{X}}'", "ann", "/owner = 'ann'"),
    (ValueKind.ARGUMENTS, "/owner = '{{X}}'", "' OR 1=1 OR 'a", FAILS),
    (ValueKind.ARGUMENTS, "{{X}}", "/any/where", "/any/where"),
    (ValueKind.TEXT, "said {{X}}", "'\"", "said '\""),
]


@pytest.mark.parametrize(("kind", "text", "value", "expected"), PLACES)
def test_values_are_escaped_by_the_kind_of_option(
    kind: ValueKind, text: str, value: str, expected: str | None
) -> None:
    template = TEMPLATES[kind](text)
    if expected is None:
        with pytest.raises(StepError, match="value of"):
            template.expand(context(value))
    else:
        assert template.expand_text(context(value, AMPS_MINIDUMP_PATH="/d*/m")) == expected


BODIES = [
    ("json", '{"a":"{{X}}"}', 'x","role":"admin', '{"a":"x\\",\\"role\\":\\"admin"}'),
    ("json", '{"a":"{{X}}"}', 'é\\\n\x01"', '{"a":"é\\\\\\n\\u0001\\""}'),
    ("json", '{"a":"\\"{{X}}"}', '"', '{"a":"\\"\\""}'),
    ("json", '{"a":{{X}}}', "5", '{"a":5}'),
    ("json", '{"a":{{X}}}', '{"b": [1]}', '{"a":{"b": [1]}}'),
    ("json", '{"a":{{X}}}', '5,"role":"admin"', '{"a":"5,\\"role\\":\\"admin\\""}'),
    ("json", '{"a":{{X}}}', "", '{"a":""}'),
    ("json", "{{X}}", '{"a":1}', '{"a":1}'),
    ("json", '{"a":{{AMPS_BYTE_22}}{{X}}{{AMPS_BYTE_22}}}', '"', '{"a":"\\""}'),
    ("xml", "<a b='{{X}}'/>", "<'&\">", "<a b='&lt;&apos;&amp;&quot;&gt;'/>"),
    ("xml", "<a><![CDATA[{{X}}]]></a>", "<b>]]>", "<a><![CDATA[<b>]]]]><![CDATA[>]]></a>"),
    ("xml", "<a><![CDATA[x]]>{{X}}</a>", "<b>", "<a><![CDATA[x]]>&lt;b&gt;</a>"),
    ("xml", "{{X}}", "<a/>", "<a/>"),
    ("nvfix", "a={{X}}{{AMPS_BYTE_01}}b=2", "1\x01role=admin", "a=1 role=admin\x01b=2"),
    ("fix", "{{X}}58={{X}}", "1=a\x01", "1=a\x0158=1=a "),
    ("binary", "a{{X}}", '"', 'a"'),
]  # fmt: skip


@pytest.mark.parametrize(("message_type", "text", "value", "expected"), BODIES)
def test_values_are_escaped_in_messages(
    message_type: str, text: str, value: str, expected: str
) -> None:
    template = body_template(text, MessageTypes().get(message_type))
    assert template.expand_text(context(value)) == expected


def test_json_that_is_nested_too_deeply_is_a_string() -> None:
    deep = "[" * 100_000 + "]" * 100_000
    template = body_template('{"a":{{X}}}', MessageTypes().get("json"))
    assert json.loads(template.expand(context(deep))) == {"a": deep}


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_value_is_one_value_of_a_json_message(value: str) -> None:
    template = body_template('{"a":"{{X}}","b":{{X}}}', MessageTypes().get("json"))
    found = json.loads(template.expand(context(value)))
    assert list(found) == ["a", "b"]
    assert found["a"] == value


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"])))
def test_any_value_is_the_text_of_an_xml_element(value: str) -> None:
    text = "<r><a>{{X}}</a><b><![CDATA[{{X}}]]></b></r>"
    found = ElementTree.fromstring(
        body_template(text, MessageTypes().get("xml")).expand_text(context(value))
    )
    assert [(one.tag, one.text or "") for one in found] == [("a", value), ("b", value)]


@pytest.mark.parametrize("name", ["../precious/deep", "../*", "*"])
def test_a_client_removes_no_file_elsewhere(tmp_path: Path, name: str) -> None:
    for path in ("spool/ann/a.tmp", "precious/deep/b.tmp", "precious/c.tmp"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    bench = Bench()
    pattern = f"{tmp_path}/spool/{{{{AMPS_CLIENT_NAME}}}}/*.tmp"
    bench.add(None, ("amps-action-do-remove-files", {"Age": "0s", "Pattern": pattern}))
    bench.perform(AMPS_CLIENT_NAME=name.encode())
    assert len(list(tmp_path.rglob("*.tmp"))) == 3
    bench.perform(AMPS_CLIENT_NAME=b"ann")
    assert len(list(tmp_path.rglob("*.tmp"))) == 2


@pytest.mark.parametrize("topic", ["{{X}}", "^{{X}}$"])
def test_a_client_deletes_the_records_of_no_other_topic(topic: str) -> None:
    bench, peer = with_records()
    options: dict[str, str | list[str]] = {"Topic": topic, "MessageType": "json"}
    query = {**options, "Filter": "1 = 1", "CaptureData": "FOUND", "DefaultData": "nothing"}
    bench.add(None, ("amps-action-do-query-sow", query), ("amps-action-do-delete-sow", options))
    peer.send({"c": "publish", "t": "orders"}, b'{"id":1}')
    (sow,) = bench.core.engine.sow_registry.topics
    for name in (b"nobody|^(orders|x)$", b".*", b"order."):
        bench.perform(X=name)
    assert len(sow.table) == 1
    bench.perform(X=b"orders")
    assert len(sow.table) == 0
