"""Edits the text of a file of users, and keeps the rest of it as it is, comments included.

Each change is checked: `tomllib` must read the same from the new text as from the old one, with
exactly the intended difference. A file in an unforeseen form (users in one line, dotted keys) is
left unchanged, and the error tells the operator to edit it by hand.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Sequence
from typing import Any, Final

from server.security.users.toml_source_map import make_source_map
from server.security.users.users import PASSWORD, ROLES, USERS

NEW_FILE: Final = """\
# Users of Amperage, and what they may do. docs/security.md tells what can stand here.
# amps-users adds and removes users and changes passwords; everything else is for an editor.
"""

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")


class UsersFileEditError(ValueError):
    """A change cannot be made. The text has the reason."""


def with_user(text: str, name: str, password: Sequence[str] | None, roles: Sequence[str]) -> str:
    """Add a user, who may log on, and return the new text.

    Args:
        text: text of the file.
        name: name of the user.
        password: the hash of the password, and its verifier; None for a user without one.
        roles: the names of the user's roles.

    Raises:
        UsersFileEditError: the user exists, a role does not, or the file cannot be read.
    """
    content = _parse(text)
    _refuse_existing(content, text, name)
    for role in roles:
        if role not in content.get(ROLES, {}):
            raise UsersFileEditError(f"there is no role {role!r}")
    fields: dict[str, Any] = {"logon": True}
    lines = [f"[{USERS}.{_quoted(name)}]"]
    if password is not None:
        fields[PASSWORD] = list(password)
        lines.append(f"{PASSWORD} = {_array(password)}")
    if roles:
        fields[ROLES] = list(roles)
        lines.append(f"{ROLES} = [{', '.join(map(_text, roles))}]")
    lines.append("logon = true")
    before = text if not text or text.endswith("\n") else f"{text}\n"
    content.setdefault(USERS, {})[name] = fields
    return _checked(before + "\n" + "\n".join(lines) + "\n", content)


def with_password(text: str, name: str, password: Sequence[str]) -> str:
    """Replace the hash and the verifier of a user's password, and return the new text.

    Raises:
        UsersFileEditError: the user does not exist, or the file has a form that cannot be changed
            here.
    """
    content = _parse(text)
    user = _existing(content, name)
    source_map = make_source_map(text)
    where = source_map.values.get((USERS, name, PASSWORD))
    if where is not None:
        changed = text[: where[0]] + _array(password) + text[where[1] :]
    else:
        header = next(
            (table for table in source_map.tables if table.key_path == (USERS, name)), None
        )
        if header is None:
            raise UsersFileEditError(_edit_error(name))
        line = f"\n{PASSWORD} = {_array(password)}"
        changed = text[: header.end] + line + text[header.end :]
    user[PASSWORD] = list(password)
    return _checked(changed, content)


def without_user(text: str, name: str) -> str:
    """Remove a user, and return the new text.

    Raises:
        UsersFileEditError: the user does not exist, or the file has a form that cannot be changed
            here.
    """
    content = _parse(text)
    _existing(content, name)
    tables = make_source_map(text).tables
    parts = []
    end = 0
    for number, table in enumerate(tables):
        if table.key_path[:2] != (USERS, name):
            continue
        parts.append(text[end : table.start])
        end = tables[number + 1].start if number + 1 < len(tables) else len(text)
        end = _before_comments(text, table.end, end)
    if not parts:
        raise UsersFileEditError(_edit_error(name))
    del content[USERS][name]
    if not content[USERS]:
        del content[USERS]
    return _checked("".join(parts) + text[end:], content)


def _before_comments(text: str, start: int, end: int) -> int:
    """Return the end of a table; comments right before the next table belong to that one."""
    body = text[start:end]
    own_text = re.sub(r"(?:^[ \t]*#[^\n]*\n)+\Z", "", body, flags=re.MULTILINE)
    return start + len(own_text)


def _parse(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also for a number that is too long
        raise UsersFileEditError(f"it is no TOML: {error or 'nested too deep'}") from None


def _checked(changed: str, expected: dict[str, Any]) -> str:
    """Return the changed text.

    Raises:
        UsersFileEditError: its content is not the expected one.
    """
    try:
        content = tomllib.loads(changed)
    except ValueError:
        content = None
    if content != expected and content != {**expected, USERS: {}}:
        raise UsersFileEditError(
            "it is written in a way that cannot be changed here; change it by hand"
        )
    return changed


def _existing(content: dict[str, Any], name: str) -> dict[str, Any]:
    users = content.get(USERS)
    user = users.get(name) if isinstance(users, dict) else None
    if not isinstance(user, dict):
        raise UsersFileEditError(f"there is no user {name!r}")
    return user


def _refuse_existing(content: dict[str, Any], text: str, name: str) -> None:
    users = content.get(USERS, {})
    if not isinstance(users, dict):
        raise UsersFileEditError(f"{USERS} is no table")
    if name in users:
        line = make_source_map(text).line_of((USERS, name))
        raise UsersFileEditError(f"there is a user {name!r} already, in line {line}")


def _edit_error(name: str) -> str:
    return f"there is no [{USERS}.{_quoted(name)}] in a line of its own; change it by hand"


def _quoted(name: str) -> str:
    return name if _BARE.fullmatch(name) else _text(name)


def _array(values: Sequence[str]) -> str:
    """Return an array with a line for each text."""
    return "[\n" + "".join(f"    {_text(value)},\n" for value in values) + "]"


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)
