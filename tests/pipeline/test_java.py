"""Which Java Spark is started with."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from pipeline.java import JavaMissingError, java_home, launcher_home, version_of


def fake_java(directory: Path, version: str) -> Path:
    """A program that says which version it is."""
    program = directory / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2026-01-01' >&2\n")
    program.chmod(0o755)
    return program


@pytest.mark.process
@pytest.mark.parametrize(
    ("text", "version"), [("17.0.15", 17), ("1.8.0_392", 8), ("25", 25), ("21-ea", 21)]
)
def test_versions(tmp_path: Path, text: str, version: int) -> None:
    assert version_of(fake_java(tmp_path, text)) == version


@pytest.mark.process
def test_a_new_enough_java_of_the_system_is_left_to_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_java(tmp_path, "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java_home(tmp_path) is None


def test_without_one_that_of_the_wheel_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with the module that it does not have."""
    fake_java(tmp_path / "old", "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    home = java_home(tmp_path)
    assert home is not None
    command = [str(home / "bin" / "java"), "--add-modules=jdk.incubator.vector", "-version"]
    run = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ)
    assert "version" in run.stderr


def test_arguments_reach_java_as_they_are(tmp_path: Path) -> None:
    """But for the one."""
    java = tmp_path / "with space" / "java"
    java.parent.mkdir()
    java.write_text('#!/bin/sh\nprintf "%s|" "$@"\n')
    java.chmod(0o755)
    command = [str(launcher_home(java, tmp_path) / "bin" / "java"), "-cp", "a b:*"]
    command += ["--add-modules=jdk.incubator.vector", "", "Main"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run.stdout == "-cp|a b:*||Main|"


def test_no_java_at_all_is_an_error_that_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(JavaMissingError, match="found none; install one, set JAVA_HOME"):
        java_home(tmp_path)
