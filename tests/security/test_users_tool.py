"""amps-users: keeps the file of users."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import cast

import pytest

from server.security.scram import make_verifier, read_verifier
from server.security.users.password_hashes import read_hash
from tests.security.users import MODULES, USERS, may_log_on, write_users
from tests.support.quick import quick_command
from tests.support.server import ROOT, environment, running_server
from tests.support.waiting import WAIT_SECONDS, comes_true

CHEAP = ("--cost", "4")
COMMENTED = """# who is who
[roles.trader]  # they trade
logon = true

# ann came first
[users.ann]
roles = [
    "trader",  # for now
]
password = '''$scrypt$ln=4,r=8,p=1$c2FsdHNhbHQ$ZGlnZXN0ZGlnZXN0ZGlnZXN0'''  # old

[[users.ann.topic]]
topic = "a"
read = true

# and then bob
[users."bob b"]
logon = true
"""


def users(
    directory: Path, *words: str, stdin: str = "", **variables: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*quick_command("server.cli.amps_users"), *words],
        cwd=directory,
        input=stdin,
        capture_output=True,
        text=True,
        env=environment(**variables),
        timeout=WAIT_SECONDS,
        check=False,
    )


def content(directory: Path) -> dict[str, dict[str, dict[str, object]]]:
    return tomllib.loads((directory / "users.toml").read_text())


def matches(directory: Path, user: str, password: str) -> bool:
    """Whether both the hash and the verifier in the file are those of a password."""
    hash_text, verifier_text = cast("list[str]", content(directory)["users"][user]["password"])
    verifier = read_verifier(verifier_text)
    assert verifier is not None
    same = make_verifier(password, verifier.salt, verifier.iterations)
    return read_hash(hash_text).matches(password) and verifier == same


def test_the_first_user_makes_the_file(tmp_path: Path) -> None:
    done = users(tmp_path, "add", "users.toml", "ann", "--stdin", stdin="secret\nmore\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "users.toml").stat().st_mode & 0o777 == 0o600
    assert matches(tmp_path, "ann", "secret")
    assert "$scrypt$ln=15,r=8,p=1$" in (tmp_path / "users.toml").read_text()
    assert list(tmp_path.iterdir()) == [tmp_path / "users.toml"]


def test_what_a_server_runs_with_changes_at_once(tmp_path: Path) -> None:
    write_users(tmp_path)
    with running_server(tmp_path, elements=MODULES) as server:
        added = users(tmp_path, "add", "users.toml", "dan", "--env", "SECRET", *CHEAP, SECRET="é x")
        assert added.returncode == 0
        assert "users.dan.password: ln=4 lets passwords be tried" in added.stderr
        assert comes_true(lambda: may_log_on(server, "dan", "é x"))
        with server.log_on("d", user_id="dan", pw="é x") as dan:
            users(tmp_path, "passwd", "users.toml", "dan", "--stdin", *CHEAP, stdin="new\n")
            assert comes_true(lambda: may_log_on(server, "dan", "new"))
            dan.flush()
            assert users(tmp_path, "remove", "users.toml", "dan").returncode == 0
            assert dan.is_disconnected()
        assert not may_log_on(server, "dan", "new")


def test_a_variable_may_name_a_file_with_the_password(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("secret\n")
    words = ("add", "users.toml", "ann", "--env", "SECRET", *CHEAP)
    assert users(tmp_path, *words, SECRET_FILE="password").returncode == 0
    assert matches(tmp_path, "ann", "secret")
    (tmp_path / "users.toml").unlink()
    refused = users(tmp_path, *words, SECRET_FILE="missing")
    assert refused.returncode == 1
    assert "variable SECRET: missing: No such file" in refused.stderr


def test_everything_else_stays_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "users.toml"
    file.write_text(COMMENTED)
    file.chmod(0o640)
    users(tmp_path, "add", "users.toml", "c.d", "--stdin", "--role", "trader", *CHEAP, stdin="x\n")
    after = file.read_text()
    assert after.startswith(COMMENTED)
    assert after.endswith('roles = ["trader"]\nlogon = true\n')
    users(tmp_path, "passwd", "users.toml", "ann", "--stdin", *CHEAP, stdin="y\n")
    users(tmp_path, "passwd", "users.toml", "bob b", "--stdin", *CHEAP, stdin="z\n")
    assert matches(tmp_path, "ann", "y")
    assert matches(tmp_path, "bob b", "z")
    assert "  # old\n" in file.read_text()
    users(tmp_path, "remove", "users.toml", "c.d")
    users(tmp_path, "remove", "users.toml", "ann")
    text = file.read_text()
    assert text.startswith("# who is who\n[roles.trader]  # they trade\nlogon = true\n")
    assert '# and then bob\n[users."bob b"]\npassword = ' in text
    assert content(tmp_path)["users"].keys() == {"bob b"}
    assert file.stat().st_mode & 0o777 == 0o640


def test_lines_end_as_they_did(tmp_path: Path) -> None:
    file = tmp_path / "users.toml"
    file.write_bytes(b"\xef\xbb\xbf[users.ann]\r\nlogon = true\r\n")
    assert (
        users(tmp_path, "passwd", "users.toml", "ann", "--stdin", *CHEAP, stdin="x\n").returncode
        == 0
    )
    assert file.read_bytes().count(b"\n") == file.read_bytes().count(b"\r\n") == 6
    assert users(tmp_path, "list", "users.toml").stdout == "ann  password\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("add", "users.toml", "ann", "--stdin"), "there is a user 'ann' already, in line 9"),
        (("add", "users.toml", "x", "--role", "y", "--stdin"), "there is no role 'y'"),
        (("add", "users.toml", "\x07", "--stdin"), "is no name that can be used"),
        (("add", "users.toml", "x", "--stdin"), "the password is empty"),
        (("add", "users.toml", "x", "--env", "NOWHERE"), "no environment variable NOWHERE"),
        (("add", "users.toml", "x"), "there is no terminal to ask for a password"),
        (("add", "users.toml", "x", "--env", "SET", "--cost", "40"), "takes more than 256 MiB"),
        (("passwd", "users.toml", "x", "--stdin"), "there is no user 'x'"),
        (("remove", "users.toml", "x"), "there is no user 'x'"),
        (("passwd", "nowhere.toml", "x", "--stdin"), "nowhere.toml: No such file or directory"),
    ],
)
def test_what_cannot_be_done_is_one_line(tmp_path: Path, words: list[str], said: str) -> None:
    before = write_users(tmp_path).read_bytes()
    done = users(tmp_path, *words, stdin="\n", SET="secret")
    assert done.returncode == 1
    assert done.stderr.startswith("amps-users: ")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert (tmp_path / "users.toml").read_bytes() == before
    assert list(tmp_path.iterdir()) == [tmp_path / "users.toml"]


@pytest.mark.parametrize(
    "text", ["users = {ann = {logon = true}}\n", "[users]\nann.logon = true\n"]
)
def test_what_is_written_otherwise_is_left_to_an_editor(tmp_path: Path, text: str) -> None:
    (tmp_path / "users.toml").write_text(text)
    for words in (("passwd", "users.toml", "ann", "--stdin"), ("remove", "users.toml", "ann")):
        done = users(tmp_path, *words, stdin="x\n")
        assert done.returncode == 1
        assert "by hand" in done.stderr
    assert (tmp_path / "users.toml").read_text() == text


def test_a_password_is_asked_for_twice_and_not_shown(tmp_path: Path) -> None:
    for again, code in (("other", 1), ("secret", 0)):
        child, terminal = pty.fork()
        if child == 0:
            os.chdir(tmp_path)
            os.environ["PYTHONPATH"] = str(ROOT)
            words = ["-m", "server.cli.amps_users", "add", "users.toml", "ann", *CHEAP]
            os.execv(sys.executable, [sys.executable, *words])
        seen = b""
        for prompt, answer in ((b"Password of ann: ", "secret"), (b"The same again: ", again)):
            while not seen.endswith(prompt):
                seen += os.read(terminal, 1024)
            os.write(terminal, f"{answer}\n".encode())
        while True:
            try:
                chunk = os.read(terminal, 1024)
            except OSError:
                break
            if not chunk:
                break
            seen += chunk
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == code
        os.close(terminal)
        assert b"secret" not in seen
    assert matches(tmp_path, "ann", "secret")


def test_users_are_listed(tmp_path: Path) -> None:
    write_users(tmp_path)
    listed = users(tmp_path, "list", "users.toml")
    assert listed.stdout.splitlines() == [
        "ann    password     trader",
        "bob    password",
        "carol  password",
        "guest  no password",
    ]
    objects = users(tmp_path, "list", "users.toml", "--json").stdout.splitlines()
    assert json.loads(objects[0]) == {
        "user": "ann",
        "password": "scrypt ln=4,r=8,p=1",
        "scram": None,
        "roles": ["trader"],
        "line": 9,
    }
    assert json.loads(objects[3])["password"] is None


def test_a_check_says_what_verification_says(tmp_path: Path) -> None:
    write_users(tmp_path, USERS.replace("logon = false", "logon = 1").replace('"^prices"', '"("'))
    checked = users(tmp_path, "check", "users.toml")
    assert checked.returncode == 1
    errors = [line for line in checked.stderr.splitlines() if ": error: " in line]
    assert errors[0].startswith("users.toml:6: error: roles.trader: topic, entry 2: topic: ")
    assert errors[1] == ("users.toml:20: error: users.carol: logon: expected true or false, not 1")
    found = [
        json.loads(line)
        for line in users(tmp_path, "check", "users.toml", "--json").stdout.splitlines()
    ]
    assert [one["line"] for one in found if one["severity"] == "error"] == [6, 20]
    write_users(tmp_path)
    checked = users(tmp_path, "check", "users.toml")
    assert checked.returncode == 0
    assert checked.stdout == "users.toml can be used: 4 users\n"


@pytest.mark.parametrize(
    "words",
    [
        ("add", "users.toml", "ann", "--no-password"),
        ("remove", "users.toml", "ann"),
        ("passwd", "users.toml", "ann", "--env", "PW"),
        ("list", "users.toml"),
        ("check", "users.toml"),
    ],
)
def test_what_is_no_file_is_neither_read_nor_replaced(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    os.mkfifo(tmp_path / "users.toml")
    done = users(tmp_path, *words, PW="x")
    assert done.returncode == 1
    assert "it is a pipe and no file" in done.stderr
    assert "Traceback" not in done.stderr
    assert (tmp_path / "users.toml").is_fifo()


@pytest.mark.parametrize("words", [("check", "users.toml"), ("remove", "users.toml", "ann")])
def test_a_number_that_is_too_long_is_a_mistake_like_others(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    (tmp_path / "users.toml").write_text(f"[users.ann]\nlogon = {'1' * 5_000}\n")
    done = users(tmp_path, *words)
    assert done.returncode == 1
    assert "it is no TOML: " in done.stderr
    assert "Traceback" not in done.stderr
