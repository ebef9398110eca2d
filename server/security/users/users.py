"""Users, their password hashes and their permissions: one file, in TOML.

    [roles.trader]
    logon = true
    topic = [
        { topic = "orders", read = "/desk = 7", write = true },
        { topic = "^prices", read = true, select = "-/,+/symbol,+/price" },
    ]

    [users.ann]
    password = ["$scrypt$ln=15,r=8,p=1$...", "SCRAM-SHA-256$32768:..."]
    roles = ["trader"]
    admin = [{ topic = "^/amps/instance", read = true }]

A password is a hash, or a list of the hash and the verifier of the same password, which logons by
SCRAM need.

Users and roles have the fields of a permission document (`server.security.permission_document`).
Where a user's own fields have no rule, the roles are searched in their order: the first entry that
matches the topic applies, and the first `logon` present. Without any rule, access is refused.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from config_schema.problems import Location, Problems
from config_schema.suggest import nearest
from server.security.permission_document import (
    KNOWN_FIELDS,
    DocumentError,
    DocumentPath,
    PermissionDocument,
    PermitCache,
    format_path,
    make_document,
)
from server.security.permissions import Permission
from server.security.scram import ScramVerifier, read_verifier
from server.security.users.password_hashes import (
    DEFAULT_COST,
    MIN_STRONG_COST,
    HashCost,
    HashError,
    PasswordHash,
    read_hash,
)
from server.security.users.toml_source_map import TomlPath, TomlSourceMap, make_source_map
from server.util.safe_open import open_regular

if TYPE_CHECKING:
    from server.expressions.functions.registry import Functions
    from server.security.permissions import Permit

MAX_USERS_FILE_SIZE: Final = 64 * 1024 * 1024
"""Size limit of a file, in bytes."""

ValueT = TypeVar("ValueT")

USERS: Final = "users"
ROLES: Final = "roles"
PASSWORD: Final = "password"  # noqa: S105 - the name of a field

_TOP: Final = (USERS, ROLES)
_FIELDS_OF_ROLES: Final = KNOWN_FIELDS - {"user_name"}
_FIELDS_OF_USERS: Final = _FIELDS_OF_ROLES | {PASSWORD, ROLES}

_LINE_OF_ERROR: Final = re.compile(r"^(.*) \(at line (\d+), column (\d+)\)$", re.DOTALL)
_AT_END: Final = " (at end of document)"


class UserPermissions(PermitCache):
    """The permissions of a user: from its own fields first, then from its roles.

    Args:
        documents: these, in their order.
    """

    def __init__(self, documents: Sequence[PermissionDocument]) -> None:
        super().__init__()
        self._documents = documents

    def allows_instance(self, name: str) -> bool | None:
        """See `Permissions`."""
        answers = (document.allows_instance(name) for document in self._documents)
        return next((answer for answer in answers if answer is not None), None)

    def evaluate(self, permission: Permission, resource: str) -> Permit | None:
        """See `PermitCache`."""
        permits = (document.evaluate(permission, resource) for document in self._documents)
        return next((permit for permit in permits if permit is not None), None)


@dataclass(frozen=True, slots=True)
class User:
    """A user.

    Attributes:
        name: the user's name.
        location: the position of the definition.
        password: the hash of the password; None if the user cannot log on with one.
        scram: the verifier of the password; None if the user cannot log on by SCRAM.
        permissions: the user's permissions.
        roles: the names of the user's roles.
        source: the data of the permissions: users with equal data have equal permissions.
    """

    name: str
    location: Location
    password: PasswordHash | None
    scram: ScramVerifier | None
    permissions: UserPermissions
    roles: tuple[str, ...]
    source: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Users:
    """The content of a file.

    Attributes:
        users: the users, by name.
        roles: the names of the roles.
        usual_cost: the most frequent cost of the hashes.
        usual_iterations: the most frequent iterations of the verifiers of SCRAM; 0 if most users
            with a password have no verifier.
    """

    users: Mapping[str, User] = field(default_factory=dict)
    roles: tuple[str, ...] = ()
    usual_cost: HashCost = DEFAULT_COST
    usual_iterations: int = 0

    def changed_since(self, before: Users) -> tuple[frozenset[str], frozenset[str]]:
        """Return the users with changed permissions, and the removed users."""
        removed = before.users.keys() - self.users.keys()
        changed = (
            name
            for name, user in self.users.items()
            if name in before.users and user.source != before.users[name].source
        )
        return frozenset(changed), frozenset(removed)

    def with_other_passwords(self, before: Users) -> frozenset[str]:
        """Return the users in both versions with a changed, added or removed password."""
        common = self.users.keys() & before.users.keys()
        return frozenset(
            name
            for name in common
            if (self.users[name].password, self.users[name].scram)
            != (before.users[name].password, before.users[name].scram)
        )


def read_users_file(path: str, functions: Functions, problems: Problems) -> Users | None:
    """Read a users file.

    Args:
        path: the file.
        functions: the functions that filters may call.
        problems: receives errors, by line, and warnings about risks.

    Returns:
        None if it cannot be used.
    """
    location = Location(path, 0)
    try:
        with open_regular(path) as file:
            mode = os.fstat(file.fileno()).st_mode
            octets = file.read(MAX_USERS_FILE_SIZE + 1)
    except OSError as error:
        problems.error(location, "", f"cannot be read: {error.strerror or error}")
        return None
    risk = mode_problem(mode)
    if risk:
        problems.warning(location, "", risk, f"chmod o-rwx {path}")
    if len(octets) > MAX_USERS_FILE_SIZE:
        problems.error(location, "", f"it has more than {MAX_USERS_FILE_SIZE} bytes")
        return None
    return read_users(octets, path, functions, problems)


def mode_problem(mode: int) -> str:
    """Return the risk in the mode of a file with password hashes; empty for none."""
    others = stat.S_IMODE(mode) & (stat.S_IROTH | stat.S_IWOTH)
    if not others:
        return ""
    access = "change" if others & stat.S_IWOTH else "read"
    return f"all users of this machine can {access} it (mode {stat.S_IMODE(mode):04o})"


def read_users(octets: bytes, path: str, functions: Functions, problems: Problems) -> Users | None:
    """Parse the content of a users file; see `read_users_file`."""
    text = _decode(octets, path, problems)
    if text is None:
        return None
    content = _parse(text, path, problems)
    if content is None:
        return None
    return _UsersFileReader(path, make_source_map(text), functions, problems).read(content)


def _decode(octets: bytes, path: str, problems: Problems) -> str | None:
    try:
        return octets.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = octets.count(b"\n", 0, error.start) + 1
        problems.error(Location(path, line), "", f"expected UTF-8: {error.reason}")
        return None


def _parse(text: str, path: str, problems: Problems) -> dict[str, Any] | None:
    try:
        return tomllib.loads(text)
    except RecursionError:
        problems.error(Location(path, 0), "", "it is nested too deep")
    except ValueError as error:  # mostly a TOMLDecodeError; a number may be too long as well
        words = str(error)
        placed = _LINE_OF_ERROR.match(words)
        line = int(placed[2]) if placed else text.count("\n") + 1
        problem = f"{placed[1]}, column {placed[3]}" if placed else words.removesuffix(_AT_END)
        problems.error(Location(path, line), "", f"it is no TOML: {problem}")
    return None


class _UsersFileReader:
    """Reads the parts of a file.

    Args:
        path: the file.
        source_map: the positions of its parts.
        functions: the functions that filters may call.
        problems: receives errors and warnings.
    """

    def __init__(
        self, path: str, source_map: TomlSourceMap, functions: Functions, problems: Problems
    ) -> None:
        self._path = path
        self._source_map = source_map
        self._functions = functions
        self._problems = problems
        self._has_errors = False

    def read(self, content: dict[str, Any]) -> Users | None:
        for name in content:
            if name not in _TOP:
                self._report((name,), name, *_unknown(name, _TOP))
        roles = {
            name: self._read_role(name, fields)
            for name, fields in self._read_tables(content, ROLES)
        }
        users = {
            name: self._read_user(name, fields, roles)
            for name, fields in self._read_tables(content, USERS)
        }
        if self._has_errors:
            return None
        owners = [user for user in users.values() if user.password]
        costs = [user.password.cost for user in owners if user.password]
        iterations = [user.scram.iterations if user.scram else 0 for user in owners]
        return Users(
            users, tuple(roles), _most_frequent(costs, DEFAULT_COST), _most_frequent(iterations, 0)
        )

    def _read_tables(
        self, content: dict[str, Any], kind: str
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        tables = content.get(kind, {})
        if not isinstance(tables, dict):
            self._report((kind,), kind, f"expected tables such as [{kind}.NAME]")
            return
        for name, fields in tables.items():
            if not isinstance(fields, dict):
                self._report((kind, name), f"{kind}.{name}", f"expected a table [{kind}.{name}]")
            elif not name.strip() or not name.isprintable():
                self._report((kind, name), kind, f"{name!r} is no name that can be used")
            else:
                yield name, fields

    def _read_role(
        self, name: str, fields: dict[str, Any]
    ) -> tuple[PermissionDocument, dict[str, Any]] | None:
        key_path = (ROLES, name)
        self._refuse_unknown(key_path, fields, _FIELDS_OF_ROLES)
        document = self._read_document(key_path, fields)
        return None if document is None else (document, fields)

    def _read_user(
        self,
        name: str,
        fields: dict[str, Any],
        roles: Mapping[str, tuple[PermissionDocument, dict[str, Any]] | None],
    ) -> User:
        key_path = (USERS, name)
        self._refuse_unknown(key_path, fields, _FIELDS_OF_USERS)
        password, scram = self._read_password(key_path, fields.get(PASSWORD))
        names = self._read_role_names(key_path, fields.get(ROLES, []), roles)
        document_fields = {key: value for key, value in fields.items() if key in _FIELDS_OF_ROLES}
        layers = [
            (self._read_document(key_path, document_fields), document_fields),
            *(roles[role] or (None, {}) for role in names),
        ]
        permissions = UserPermissions([document for document, _ in layers if document is not None])
        self._warn_of_no_logon(key_path, permissions, [content for _, content in layers])
        return User(
            name,
            self._location(key_path),
            password,
            scram,
            permissions,
            tuple(names),
            tuple(content for _, content in layers),
        )

    def _read_document(
        self, key_path: TomlPath, fields: dict[str, Any]
    ) -> PermissionDocument | None:
        document_fields = {key: value for key, value in fields.items() if key in _FIELDS_OF_ROLES}

        def format_position(inner: DocumentPath) -> str:
            where = self._location((*key_path, *inner))
            return f"{where}: {_dotted(key_path)}: {format_path(inner)}"

        try:
            return make_document(document_fields, self._functions, format_position)
        except DocumentError as error:
            self._report((*key_path, *error.path), _dotted(key_path), str(error))
            return None

    def _read_password(
        self, key_path: TomlPath, value: object
    ) -> tuple[PasswordHash | None, ScramVerifier | None]:
        """Return the hash of a password, and its verifier: a text, or a list of one or two."""
        if value is None:
            return None, None
        where = (*key_path, PASSWORD)
        texts = value if isinstance(value, list) else [value]
        try:
            hash_text, *verifiers = (
                text if isinstance(text, str) else "" for text in texts or [""]
            )
            password = read_hash(hash_text)
            scram = _read_verifier(verifiers)
        except HashError as error:
            self._report(where, f"{_dotted(key_path)}.password", str(error), "amps-users makes one")
            return None, None
        if password.cost.ln < MIN_STRONG_COST:
            self._problems.warning(
                self._location(where),
                f"{_dotted(key_path)}.password",
                f"ln={password.cost.ln} lets passwords be tried in great numbers:"
                f" expected {MIN_STRONG_COST} or more",
            )
        return password, scram

    def _read_role_names(
        self, key_path: TomlPath, value: object, roles: Mapping[str, object]
    ) -> list[str]:
        element = f"{_dotted(key_path)}.roles"
        if not isinstance(value, list):
            self._report((*key_path, ROLES), element, "expected a list of names of roles")
            return []
        good = []
        for number, name in enumerate(value):
            if isinstance(name, str) and name in roles:
                good.append(name)
                continue
            meant = nearest(name, roles) if isinstance(name, str) else None
            hint = f"did you mean {meant}?" if meant else f"expected a table [roles.{name}]"
            self._report((*key_path, ROLES, number), element, f"there is no role {name!r}", hint)
        return good

    def _warn_of_no_logon(
        self, key_path: TomlPath, permissions: UserPermissions, contents: Sequence[dict[str, Any]]
    ) -> None:
        if not any("topic" in content for content in contents):
            return
        for permission in (Permission.LOGON, Permission.REPLICATION_LOGON):
            permit = permissions.evaluate(permission, "")
            if permit is not None and permit.is_allowed:
                return
        self._problems.warning(
            self._location(key_path),
            _dotted(key_path),
            "topics are of no use to who may not log on",
            'add "logon = true", here or to a role',
        )

    def _refuse_unknown(
        self, key_path: TomlPath, fields: dict[str, Any], known: frozenset[str]
    ) -> None:
        for name in fields:
            if name not in known:
                self._report((*key_path, name), _dotted((*key_path, name)), *_unknown(name, known))

    def _location(self, key_path: TomlPath) -> Location:
        return Location(self._path, self._source_map.line_of(key_path))

    def _report(
        self, key_path: TomlPath, element: str, message: str, hint: str | None = None
    ) -> None:
        self._has_errors = True
        self._problems.error(self._location(key_path), element, message, hint)


def _read_verifier(texts: Sequence[str]) -> ScramVerifier | None:
    """Return the verifier behind the hash of a password; None if there is none.

    Raises:
        HashError: it is malformed, or there are several.
    """
    if not texts:
        return None
    verifier = read_verifier(texts[0]) if len(texts) == 1 else None
    if verifier is None:
        raise HashError(
            "expected a verifier as SCRAM-SHA-256$ITERATIONS:SALT$STORED_KEY:SERVER_KEY behind the"
            " hash"
        )
    return verifier


def _most_frequent(values: Sequence[ValueT], default: ValueT) -> ValueT:
    return Counter(values).most_common(1)[0][0] if values else default


def _unknown(name: str, known: Sequence[str] | frozenset[str]) -> tuple[str, str]:
    meant = nearest(name, sorted(known))
    expected = f"expected one of {', '.join(sorted(known))}"
    return "is not known", f"did you mean {meant}?" if meant else expected


def _dotted(key_path: TomlPath) -> str:
    return ".".join(map(str, key_path))
