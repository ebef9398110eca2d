"""The JSON schemas of permission documents and files of users say what the server says."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest

from config_schema.problems import Problems
from server.expressions import BUILTINS
from server.security.permission_document import DocumentError, make_document
from server.security.users.users import read_users
from tests.security.users import hashed, scram_of

SCHEMAS: Final = Path(__file__).parents[2] / "schemas"
DOCUMENT: Final = "permission-document.schema.json"
USERS: Final = "users.schema.json"

DOCUMENTS: Final[dict[str, Any]] = {
    "nothing": {},
    "everything": {
        "logon": True,
        "replication-logon": False,
        "topic": [{"topic": "^orders", "read": "/desk = 7", "write": False, "select": "-/,+/id"}],
        "admin": [{"topic": "/amps", "read": True}],
        "replicated-topics": ["orders"],
        "user_name": "ann",
    },
    "no select": {"topic": [{"topic": "orders", "read": True, "select": None}]},
    "an unknown field": {"topics": []},
    "an unknown field of a rule": {"topic": [{"topic": "a", "reed": True}]},
    "a rule without a topic": {"topic": [{"read": True}]},
    "a word for a switch": {"logon": "true"},
    "a number for a permit": {"topic": [{"topic": "a", "read": 1}]},
    "one rule without a list": {"topic": {"topic": "a"}},
    "a name that is a number": {"user_name": 7},
    "a topic that is a number": {"replicated-topics": [7]},
}

FILES: Final = {
    "nothing": "",
    "users with roles": (
        "[roles.a]\nlogon = true\n[users.ann]\nroles = ['a']\n"
        f"password = '{hashed('ann')}'\ntopic = [{{ topic = 'x', read = true }}]\n"
    ),
    "a verifier": f"[users.ann]\npassword = ['{hashed('ann')}', '{scram_of('ann')}']\n",
    "a verifier alone": f"[users.ann]\npassword = ['{scram_of('ann')}']\n",
    "an unknown table": "[groups.a]\n",
    "a user's field of a role": "[roles.a]\npassword = '$scrypt$'\n",
    "a name of a user": "[users.ann]\nuser_name = 'bob'\n",
    "a role that is no list": "[roles.a]\n[users.ann]\nroles = 'a'\n",
    "a password in the clear": "[users.ann]\npassword = 'secret'\n",
    "a user that is no table": "[users]\nann = 1\n",
}


def accepts(schema: str, content: object) -> bool:
    """Whether an editor that checks with a schema has nothing to say."""
    jsonschema = pytest.importorskip("jsonschema")
    read = load(schema)
    jsonschema.Draft7Validator.check_schema(read)
    return bool(jsonschema.Draft7Validator(read).is_valid(content))


def load(schema: str) -> Any:
    return json.loads((SCHEMAS / schema).read_text("utf-8"))


def test_users_and_documents_have_the_same_fields() -> None:
    """The files say so twice, since editors do not follow references from one to the other."""
    assert load(USERS)["definitions"] == load(DOCUMENT)["definitions"]


@pytest.mark.parametrize("what", DOCUMENTS)
def test_permission_documents(what: str) -> None:
    content = DOCUMENTS[what]
    try:
        make_document(content, BUILTINS)
        good = True
    except DocumentError:
        good = False
    assert accepts(DOCUMENT, content) == good


@pytest.mark.parametrize("what", FILES)
def test_files_of_users(what: str) -> None:
    text = FILES[what]
    users = read_users(text.encode(), "users.toml", BUILTINS, Problems())
    assert accepts(USERS, tomllib.loads(text)) == (users is not None)
