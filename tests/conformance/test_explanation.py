"""ampServer --explain: what an element does, and what it is in a configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest

from config_schema.schema import elements
from server.cli.amp_server import main
from tests.config_schema.test_settings import WHOLE

FAILED: Final = 1
WRONG_USAGE: Final = 2


@pytest.fixture(autouse=True)
def configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of the working directory, which includes another one."""
    monkeypatch.chdir(tmp_path)
    Path("admin.xml").write_text("<Admin>\n  <InetAddr>${PORT}</InetAddr>\n</Admin>\n")
    admin = "<Admin><InetAddr>8085</InetAddr></Admin>"
    Path("config.xml").write_text(WHOLE.replace(admin, "<Include>admin.xml</Include>"))


def explain(capfd: pytest.CaptureFixture[str], *names: str) -> str:
    assert main(["-DPORT=8085", "--explain", "config.xml", *names]) == 0
    return capfd.readouterr().out


def at(text: str) -> str:
    """The place of a part of the configuration."""
    return f"config.xml:{WHOLE[: WHOLE.index(text)].count(chr(10)) + 1}"


CASES: Final = {
    "a default": (
        "SlabSize",
        ["SOW/Topic/SlabSize\n", "Default: `5MB`", "orders (json)  5MB (default)\n"],
    ),
    "a value": ("FlushInterval", ["100ms (default)"]),
    "what is written": (
        "/AMPSConfig/SOW/Topic/Expiration",
        [f"orders (json)  1h  {at('<Expiration>')}\n", "enabled (each message brings its own)"],
    ),
    "an included file": ("Admin/InetAddr", ["8085  admin.xml:2\n"]),
    "a line of it": ("admin.xml:2", ["Admin/InetAddr\n", "admin.xml:2\n"]),
    "a line": (
        at("./log/%n.log").partition(":")[2],
        ["Logging/Target/FileName", f"./log/%n.log  {at('./log/%n.log')}"],
    ),
    "a derived default": (
        "Transport/Protocol",
        [f"tcp amps {at('<Name>tcp')}", "amps-replication (default)"],
    ),
    "several entries": ("Transport/MessageMemoryLimit", ["tcp", "1GB", "config.xml:7", "in "]),
    "an option": ("Every", ["Modules: `on-schedule`", f"1h  {at('<Every>')}\n"]),
    "an option of ours": ("Crontab", ["five fields of cron", "It is not in the configuration."]),
    "a part": ("SOW/View", ["Contains: Name, MessageType", f"sums (json)  {at('<View>')}\n"]),
    "an old name": ("TopicDefinition", ["SOW/Topic\n", "Also written: `TopicDefinition`"]),
    "all queues at once": (
        "MaxBacklog",
        ["SOW/Queue/MaxBacklog, SOW/LocalQueue/MaxBacklog, ", "jobs (json)  no limit (default)"],
    ),
}


@pytest.mark.parametrize("what", CASES)
def test_an_element_is_explained(what: str, capfd: pytest.CaptureFixture[str]) -> None:
    name, expected = CASES[what]
    printed = explain(capfd, name)
    for text in expected:
        assert text in printed or text in " ".join(printed.split())


def test_the_words_are_those_of_the_reference(capfd: pytest.CaptureFixture[str]) -> None:
    printed = " ".join(explain(capfd, "SOW/Topic/Durability").split())
    assert elements()["AMPSConfig/SOW/Topic/Durability"].documentation in printed


def test_of_many_elements_of_one_name_those_are_explained_that_are_there(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert main(["-DPORT=1", "--explain", "config.xml", "Name"]) == 0
    printed, said = capfd.readouterr()
    assert "Transports/Transport/Name\n" in printed
    assert "Protocols/Protocol/Name\n" not in printed
    assert "Protocols/Protocol/Name" in said


def test_json(capfd: pytest.CaptureFixture[str]) -> None:
    (element,) = json.loads(explain(capfd, "--json", "Durability"))["elements"]
    assert element["paths"] == ["/AMPSConfig/SOW/Topic/Durability"]
    assert element["values"] == ["persistent", "transient"]
    assert element["default"] == "persistent"
    assert (
        element["here"]
        == [
            {
                "entry": "one, orders (json)",
                "value": "persistent",
                "default": True,
                "file": None,
                "line": None,
            }
        ]
        or element["here"][0]["entry"] == "orders (json)"
    )


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("SlabSise", "there is no element 'SlabSise'; did you mean SlabSize?"),
        ("Transport/SlabSize", "did you mean AMPSConfig/SOW/Topic/SlabSize?"),
        ("other.xml:3", "'other.xml' is not a file of the configuration"),
        ("admin.xml:4", "admin.xml has 3 lines, and no line 4"),
        ("0", "config.xml has no element at or before line 0"),
        ("99999", f"config.xml has {len(WHOLE.splitlines())} lines, and no line"),
    ],
)
def test_what_is_not_known(name: str, complaint: str, capfd: pytest.CaptureFixture[str]) -> None:
    """The others are explained all the same."""
    assert main(["-DPORT=1", "--explain", "config.xml", name, "SlabSize"]) == FAILED
    printed, said = capfd.readouterr()
    assert complaint in said
    assert printed.startswith("SOW/Topic/SlabSize\n")


def test_a_configuration_that_cannot_be_used_is_explained_as_it_is_written(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Which is when explanations are needed most."""
    Path("bad.xml").write_text(
        "<AMPSConfig>\n<Name>x</Name>\n<Admin>\n<Interval>soon</Interval></Admin></AMPSConfig>"
    )
    assert main(["--explain", "bad.xml", "Admin/Interval"]) == 0
    printed, said = capfd.readouterr()
    assert "soon  bad.xml:4\n" in printed
    assert "bad.xml:4: error: Admin/Interval: 'soon' is not an interval" in said
    assert "bad.xml cannot be used" in said


@pytest.mark.parametrize("text", ["<AMPSConfig>", "<Other/>"])
def test_what_is_no_configuration(text: str, capfd: pytest.CaptureFixture[str]) -> None:
    Path("bad.xml").write_text(text)
    assert main(["--explain", "bad.xml", "Name"]) == FAILED
    assert "bad.xml cannot be used" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("--explain config.xml", "--explain takes a configuration and elements"),
        ("--explain --graph config.xml Name", "--explain and --graph exclude each other"),
        ("--json config.xml", "--json goes with"),
    ],
)
def test_what_does_not_go_together(
    line: str, complaint: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(line.split()) == WRONG_USAGE
    assert complaint in capfd.readouterr().err


@pytest.mark.parametrize("options", [["--print-schema"], ["--print-schema", "rnc"]])
def test_the_schema_for_editors_is_printed(
    options: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(options) == 0
    language = "rnc" if "rnc" in options else "xsd"
    shipped = Path(__file__).parents[2] / "schemas" / f"amps-config.{language}"
    assert capfd.readouterr().out == shipped.read_text("utf-8")
