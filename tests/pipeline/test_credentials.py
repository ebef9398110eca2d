"""Spark logs on with passwords that nobody sees, wherever they come from."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

from pipeline import catalogue
from pipeline.amps.options import read_options
from pipeline.cli import main
from pipeline.errors import PipelineError
from tests.pipeline.spark_commands import AT_START
from tests.support.long_form import spread
from tests.support.server import ROOT, RunningServer, environment, free_port, running_server
from tests.transports.support import Authority, transport

SECRET: Final = "s3cret-marker"

LIBRARY: Final = f'''
from server.security.authentication import Admission

class Door:
    async def authenticate(self, credentials, previous):
        known = credentials.user == "ann" and credentials.password == "{SECRET}"
        return Admission(known, "ann" if known else "", "" if known else "wrong password")

def create_authentication(name, options):
    return Door()
'''

ELEMENTS: Final = """
<Modules><Module><Name>door</Name><Library>./door.py</Library></Module></Modules>
<Authentication><Module>door</Module></Authentication>
<SOW>
  <Topic><Name>told</Name><FileName>told.sow</FileName><MessageType>json</MessageType><Key>/id</Key></Topic>
  <View>
    <Name>counted</Name><MessageType>json</MessageType><UnderlyingTopic>told</UnderlyingTopic>
    <Projection><Field>/id</Field><Field>COUNT(/id) AS /n</Field></Projection>
    <Grouping><Field>/id</Field></Grouping>
  </View>
</SOW>
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>told</Name><MessageType>json</MessageType></Topic>
  <Topic><Name>copied</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    directory = tmp_path_factory.mktemp("guarded")
    (directory / "door.py").write_text(LIBRARY)
    with running_server(directory, elements=ELEMENTS) as running:
        yield running


SERVER: Final = "tcp://localhost:{port}/amps/json"

FORMS: Final[dict[str, dict[str, str]]] = {
    "file": {"user": "ann", "password_file": "{file}"},
    "environment": {"user": "ann", "password_env": "AMPS_TEST_PASSWORD"},
    "option": {"user": "ann", "password": SECRET},
    "URI": {"server": f"tcp://ann:{SECRET}@" + "localhost:{port}/amps/json"},
}


@pytest.mark.usefixtures("quick_python")
def test_no_password_is_in_what_spark_says(guarded: RunningServer, tmp_path: Path) -> None:
    """Plans, errors, answers of SQL, the log with all its details, and what the UI shows."""
    secret = tmp_path / "password"
    secret.write_text(SECRET)
    events = tmp_path / "events"
    events.mkdir()
    forms = [
        {
            name: value.format(file=secret, port=guarded.port)
            for name, value in {"server": SERVER, **form}.items()
        }
        for form in FORMS.values()
    ]
    done = subprocess.run(
        [sys.executable, "-m", "tests.pipeline.telling_all", str(events), json.dumps(forms)],
        cwd=ROOT,
        env=environment(AMPS_TEST_PASSWORD=SECRET, PYTHONPATH=f"{AT_START}{os.pathsep}{ROOT}"),
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stderr[max(done.stderr.find("Traceback"), 0) :][:3000]
    assert "0 by SQL" in done.stdout
    assert done.stdout.count("1 rows") == len(forms)
    assert done.stdout.count("failed:") == 5 * len(forms)
    told = [path.read_text(errors="replace") for path in events.rglob("*") if path.is_file()]
    assert told
    for name, text in {"output": done.stdout, "log": done.stderr, "events": "".join(told)}.items():
        found = [line[:300] for line in text.splitlines() if SECRET in line]
        assert not found, (name, len(found), found[:5])


def test_connections_are_secured_with_files(spark: SparkSession, tmp_path: Path) -> None:
    authority = Authority(tmp_path, "known")
    stranger = Authority(tmp_path, "stranger")
    certificate, key = authority.issue("localhost")
    port = free_port()
    elements = (
        f"<InetAddr>127.0.0.1:{port}</InetAddr><Protocol>amps</Protocol>"
        f"<Certificate>{certificate}</Certificate><PrivateKey>{key}</PrivateKey>"
        f"<VerifyClient>true</VerifyClient><CAFile>{authority.file}</CAFile>"
    )
    own, own_key = authority.issue("client")
    given = {"server": f"tcps://localhost:{port}/amps/json", "topic": "told", "timeout": "20"}
    shown = {"certificate_file": str(own), "key_file": str(own_key)}
    (tmp_path / "door.py").write_text(LIBRARY)
    options = {**given, **shown, "ca_file": str(authority.file), "user": "ann", "password": SECRET}
    with running_server(
        tmp_path, elements=ELEMENTS, transports=transport("secure", "tcps", elements)
    ):
        rows = spark.sql("SELECT 7 AS id")
        rows.write.format("amps").mode("append").options(**options).save()
        assert spark.read.format("amps").options(**options).load().count() == 1
        options["command"] = "sow_delete"
        rows.write.format("amps").mode("append").options(**options).save()
        del options["command"]
        assert spark.read.format("amps").options(**options).load().count() == 0
        options["ca_file"] = str(stranger.file)
        with pytest.raises(Exception, match="the server's certificate is not trusted"):
            spark.read.format("amps").options(**options).load().count()


WRONG: Final = "wr0ng-marker"

CONFIGURED: Final[dict[str, list[str]]] = {
    "check": ["check", "{config}", "--server", "{uri}"],
    "view": ["view", "{config}", "counted", "--server", "{uri}"],
    "view published": [
        "view",
        "{config}",
        "counted",
        "--journals",
        "{journal}",
        "--publish",
        "{uri}/json",
    ],
    "rebuild": ["rebuild", "{config}", "--topic", "counted", "--publish", "{uri}/json"],
}


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("user", spread([f"ann:{WRONG}@", ""], 1))
@pytest.mark.parametrize("job", CONFIGURED)
def test_a_job_that_may_not_log_on_says_where_and_why_in_a_line(
    guarded: RunningServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    job: str,
    user: str,
) -> None:
    monkeypatch.chdir(guarded.log_file.parent)
    where = f"localhost:{guarded.port}/amps"
    given = {"config": "config.xml", "journal": "journal", "uri": f"tcp://{user}{where}"}
    assert main([word.format_map(given) for word in CONFIGURED[job]]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    (line,) = told.err.splitlines()
    assert line.startswith("amps-pipeline: ")
    assert where in line
    assert line.endswith("auth failure: wrong password")
    assert WRONG not in line


def test_a_catalogue_says_where_and_why_it_may_not_log_on(
    spark: SparkSession, guarded: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(guarded.log_file.parent)
    where = f"localhost:{guarded.port}/amps"
    with pytest.raises(PipelineError) as caught:
        catalogue(spark, f"tcp://ann:{WRONG}@{where}", "config.xml")
    assert where in str(caught.value)
    assert str(caught.value).endswith("auth failure: wrong password")
    assert WRONG not in str(caught.value)


MISTAKES: Final[list[tuple[dict[str, str], str]]] = [
    ({"password": SECRET, "password_env": "X"}, "password and password_env: expected one of them"),
    ({"password_file": "/no/where"}, "options password_file: /no/where: No such file or directory"),
    ({"password_env": "AMPS_NOT_THERE"}, "there is no environment variable AMPS_NOT_THERE"),
    ({"ca_file": "x.pem"}, "option ca_file='x.pem': it requires servers of tcps:// or wss://"),
    ({"server": "tcps://h:1", "ca_file": "/no.pem"}, "options ca_file: /no.pem: No such file"),
    ({"server": "tcps://h:1", "key_file": "k"}, "certificate_file is missing"),
    ({"server": f"tcp://ann:{SECRET}@h"}, "expected host:port"),
    ({"passwort": SECRET}, "option passwort: unknown; did you mean password?"),
]


@pytest.mark.parametrize(("given", "said"), MISTAKES)
def test_mistakes_are_told_without_secrets(given: dict[str, str], said: str) -> None:
    with pytest.raises(PipelineError) as caught:
        read_options({"server": "tcp://h:1/amps/json", "topic": "t", **given}, "read")
    assert said in str(caught.value)
    assert SECRET not in str(caught.value)


def test_a_password_is_read_where_it_is_needed_and_carried_where_it_is_not_there(
    tmp_path: Path,
) -> None:
    path = tmp_path / "password"
    path.write_text("first\n")
    given = {"server": "tcp://h:1/amps/json", "topic": "t", "password_file": str(path)}
    options = pickle.loads(pickle.dumps(read_options(given, "read")))
    assert "first" not in repr(options)
    path.write_text("second\n")
    assert options.login.read("ann") == "second"
    path.unlink()
    assert options.login.read("ann") == "first"
