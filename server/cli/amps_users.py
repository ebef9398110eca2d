"""`amps-users`: keeps the file of users that libamperage_users.so reads.

A password comes from the terminal, from standard input or from the environment. It is never an
argument of the command line, which all users of the machine can see.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import getpass
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from config_schema.problems import Problems
from config_schema.secret_files import SecretFileError, find_variable
from server.app.command_line import CommandLineParser, file_name, make_parser
from server.app.stdio import say
from server.cli.entry_point import command
from server.cli.users_file_edit import (
    NEW_FILE,
    UsersFileEditError,
    with_password,
    with_user,
    without_user,
)
from server.expressions import BUILTINS
from server.security.scram import make_verifier
from server.security.users.password_hashes import DEFAULT_COST, HashCost, HashError, hash_password
from server.security.users.users import MAX_USERS_FILE_SIZE, User, Users, read_users_file
from server.util.safe_open import read_regular

NAME: Final = "amps-users"
PROBLEM: Final = 1

_NEW_MODE: Final = 0o600
_CRLF: Final = "\r\n"


class _UsersRequestError(Exception):
    """A request cannot be fulfilled. The text has the reason."""


@command(NAME)
def main(arguments: Sequence[str] | None = None) -> int:
    """Edit or print a file of users.

    Returns:
        The exit status: 0, or 1 if it cannot be done, or the file cannot be used.
    """
    options = _parser().parse_args(arguments)
    do: Callable[[argparse.Namespace], int] = options.do
    try:
        return do(options)
    except (_UsersRequestError, UsersFileEditError, HashError) as problem:
        say(f"{NAME}: {options.file}: {problem}")
        return PROBLEM


def _add(options: argparse.Namespace) -> int:
    name: str = options.name
    if not name.strip() or not name.isprintable():
        raise _UsersRequestError(f"{name!r} is no name that can be used")
    path = Path(options.file)
    with _locked(path):
        text = _read(path) if path.exists() else NEW_FILE
        with_user(text, name, None, options.role)  # fail before the user types a password
        hashed = None if options.no_password else _hash(options)
        _write(path, with_user(text, name, hashed, options.role))
    return _after(options)


def _change_password(options: argparse.Namespace) -> int:
    path = Path(options.file)
    with _locked(path):
        text = _read(path)
        with_password(text, options.name, ())
        _write(path, with_password(text, options.name, _hash(options)))
    return _after(options)


def _remove(options: argparse.Namespace) -> int:
    path = Path(options.file)
    with _locked(path):
        _write(path, without_user(_read(path), options.name))
    return _after(options)


def _after(options: argparse.Namespace) -> int:
    """Print the problems that a server would report about the file."""
    problems = Problems()
    read_users_file(options.file, BUILTINS, problems)
    for problem in problems:
        say(str(problem))
    return 0


def _list(options: argparse.Namespace) -> int:
    problems = Problems()
    users = read_users_file(options.file, BUILTINS, problems)
    if users is None:
        for problem in problems:
            say(str(problem))
        return PROBLEM
    for line in _as_objects(users) if options.json else _as_table(users):
        print(line)
    return 0


def _as_objects(users: Users) -> Iterator[str]:
    for user in users.users.values():
        cost = user.password.cost if user.password else None
        yield json.dumps(
            {
                "user": user.name,
                "password": None if cost is None else f"scrypt ln={cost.ln},r={cost.r},p={cost.p}",
                "scram": None if user.scram is None else f"i={user.scram.iterations}",
                "roles": list(user.roles),
                "line": user.location.line,
            },
            ensure_ascii=False,
        )


def _as_table(users: Users) -> Iterator[str]:
    width = max((len(name) for name in users.users), default=0)
    for user in users.users.values():
        yield f"{user.name:<{width}}  {_password_of(user):<11}  {', '.join(user.roles)}".rstrip()


def _password_of(user: User) -> str:
    return "password" if user.password else "no password"


def _check(options: argparse.Namespace) -> int:
    problems = Problems()
    users = read_users_file(options.file, BUILTINS, problems)
    for problem in problems:
        if options.json:
            print(json.dumps(problem.as_data(), ensure_ascii=False))
        else:
            say(str(problem))
    if users is not None and not options.json:
        count = len(users.users)
        print(f"{options.file} can be used: {count} user{'' if count == 1 else 's'}")
    return PROBLEM if users is None else 0


def _hash(options: argparse.Namespace) -> tuple[str, str]:
    """Return the hash of the given password, and the verifier for logons by SCRAM."""
    cost = HashCost(options.cost, DEFAULT_COST.r, DEFAULT_COST.p)
    password = _password(options)
    return str(hash_password(password, cost)), str(make_verifier(password))


def _password(options: argparse.Namespace) -> str:
    """Return the password from its source.

    Raises:
        _UsersRequestError: there is none.
    """
    if options.env is not None:
        try:
            password = find_variable(options.env, os.environ)
        except SecretFileError as error:
            raise _UsersRequestError(f"variable {options.env}: {error}") from None
        if password is None:
            raise _UsersRequestError(f"there is no environment variable {options.env}")
        return password
    if options.stdin:
        try:
            return sys.stdin.readline().rstrip("\r\n")
        except UnicodeDecodeError:
            raise _UsersRequestError("expected the password in UTF-8") from None
    if not sys.stdin.isatty():
        raise _UsersRequestError(
            "there is no terminal to ask for a password: expected --stdin or --env NAME"
        )
    password = getpass.getpass(f"Password of {options.name}: ")
    if password != getpass.getpass("The same again: "):
        raise _UsersRequestError("the passwords differ")
    return password


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Lock the directory, so that no other run of this command changes the file meanwhile."""
    descriptor = os.open(path.absolute().parent, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _read(path: Path) -> str:
    """Return the text; refuse anything but a regular file, so that it is never replaced either."""
    try:
        return read_regular(path, MAX_USERS_FILE_SIZE).decode("utf-8-sig").replace(_CRLF, "\n")
    except UnicodeDecodeError:
        raise _UsersRequestError("expected UTF-8") from None


def _write(path: Path, text: str) -> None:
    """Replace the file atomically: a reader finds either the old or the new one."""
    target = Path(os.path.realpath(path))
    before = os.stat(target) if target.exists() else None
    if before is not None and _CRLF.encode() in target.read_bytes():
        text = text.replace("\n", _CRLF)
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fchmod(file.fileno(), before.st_mode & 0o7777 if before else _NEW_MODE)
            if before is not None and (before.st_uid, before.st_gid) != (os.getuid(), os.getgid()):
                with contextlib.suppress(PermissionError):  # only root may give files away
                    os.fchown(file.fileno(), before.st_uid, before.st_gid)
            os.fsync(file.fileno())
        os.replace(name, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise


def _parser() -> CommandLineParser:
    parser = make_parser(
        NAME,
        "Keep the file of users that libamperage_users.so reads. A server that runs takes changes"
        " over at once.",
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    add = _command(commands, "add", _add, "add a user, who may log on; makes the file if need be")
    _takes_user(add)
    _takes_password(add)
    role = "a role that the file has; may be given several times"
    add.add_argument("--role", action="append", default=[], metavar="ROLE", help=role)
    add.add_argument(
        "--no-password",
        action="store_true",
        help="for a user whom another module authenticates",
    )
    passwd = _command(commands, "passwd", _change_password, "change a user's password")
    _takes_user(passwd)
    _takes_password(passwd)
    _takes_user(_command(commands, "remove", _remove, "remove a user"))
    _takes_form(_command(commands, "list", _list, "list the users"))
    _takes_form(_command(commands, "check", _check, "tell everything that is wrong with the file"))
    return parser


def _command(
    commands: argparse._SubParsersAction[CommandLineParser],
    name: str,
    do: Callable[[argparse.Namespace], int],
    words: str,
) -> CommandLineParser:
    parser = commands.add_parser(name, help=words, description=f"{words[0].upper()}{words[1:]}.")
    parser.set_defaults(do=do)
    parser.add_argument("file", metavar="FILE", type=file_name, help="the file of users")
    return parser


def _takes_user(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="USER", help="the user's name")


def _takes_password(parser: argparse.ArgumentParser) -> None:
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--stdin", action="store_true", help="read the password from standard input, one line"
    )
    source.add_argument("--env", metavar="NAME", help="take it from an environment variable")
    parser.add_argument(
        "--cost",
        type=int,
        default=DEFAULT_COST.ln,
        metavar="N",
        help=f"cost of the hash: 2 to the power of N steps; {DEFAULT_COST.ln} if left out",
    )


def _takes_form(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON objects, one per line")


if __name__ == "__main__":
    sys.exit(main())
