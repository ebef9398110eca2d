"""libamperage_users.so: users, passwords and permissions in a file that may change."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from pathlib import Path

import pytest

from server.expressions import BUILTINS
from server.security.async_worker import AsyncWorker
from server.security.authentication import LogonCredentials, LogonOrigin
from server.security.deferred import AnswerFuture
from server.security.users.files import UsersFile
from server.security.users.password_checks import PasswordChecks
from server.security.users.password_hashes import read_hash
from tests.admin.support import ask
from tests.engine.support import RecordingLog
from tests.security.users import (
    MODULES,
    USERS,
    hashed,
    may_log_on,
    scram_of,
    try_to_log_on,
    write_users,
)
from tests.support.raw import RawPeer
from tests.support.replication_peer import HELLO, ReplicationPeer
from tests.support.server import RunningServer, amp_server, free_port, running_server, why_no_start
from tests.support.waiting import comes_true

ADMIN = """<Admin>
  <InetAddr>127.0.0.1:{port}</InetAddr><WWWAuthenticate>Basic realm="users"</WWWAuthenticate>
</Admin>"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    write_users(tmp_path)
    with running_server(tmp_path, elements=MODULES) as running:
        yield running


def logged_on(server: RunningServer, user: str) -> RawPeer:
    peer = server.connect()
    assert try_to_log_on(peer, user, user)["status"] == "success"
    return peer


def basic(user: str, password: str = "") -> dict[str, str]:
    """The headers of a request that shows a user's password, which is the name if it is empty."""
    shown = base64.b64encode(f"{user}:{password or user}".encode()).decode()
    return {"Authorization": f"Basic {shown}"} if user else {}


def test_a_user_logs_on_with_the_password_of_the_file(server: RunningServer) -> None:
    assert may_log_on(server, "ann", "ann")
    assert may_log_on(server, "ann", "ann")  # which is remembered now
    assert server.logs("authid           = 'ann'")


@pytest.mark.parametrize(
    ("user", "password", "detail"),
    [
        ("ann", "bob", "wrong user or password"),
        ("ann", "ann" * 2_000, "wrong user or password"),
        ("nobody", "ann", "wrong user or password"),
        ("guest", "guest", "wrong user or password"),
        ("ann", "", "a user name and a password are required"),
        ("nobody", "", "a user name and a password are required"),
        ("", "ann", "a user name and a password are required"),
    ],
)
def test_a_refusal_does_not_tell_who_is_known(
    server: RunningServer, user: str, password: str, detail: str
) -> None:
    with server.connect() as peer:
        ack = try_to_log_on(peer, user, password)
        assert (ack["status"], ack["reason"], ack["detail"]) == ("failure", "auth failure", detail)
        assert peer.is_disconnected()
    assert password == "" or f"pw={password}" not in server.log()


def test_a_password_is_right_for_its_user_only(server: RunningServer) -> None:
    assert may_log_on(server, "ann", "ann")
    assert not may_log_on(server, "bob", "ann")


def test_a_command_before_the_logon_is_refused(server: RunningServer) -> None:
    with server.connect() as peer:
        assert peer.subscribe("prices", "1")["status"] == "failure"


def test_without_logon_nobody_logs_on(server: RunningServer) -> None:
    with server.connect() as peer:
        assert try_to_log_on(peer, "carol", "carol")["reason"] == "not entitled"


@pytest.mark.parametrize(
    ("user", "command", "topic", "may"),
    [
        ("ann", "subscribe", "orders", True),
        ("ann", "publish", "orders", True),
        ("ann", "subscribe", "prices-1", True),
        ("ann", "publish", "prices-1", False),
        ("ann", "subscribe", "orders-1", False),
        ("bob", "subscribe", "prices", True),
        ("bob", "publish", "prices", False),
        ("bob", "subscribe", "orders", False),
    ],
)
def test_users_may_do_what_the_file_says(
    server: RunningServer, user: str, command: str, topic: str, may: bool
) -> None:
    with logged_on(server, user) as peer:
        ack = peer.ask({"c": command, "cid": "1", "t": topic, "a": "processed"}, b"{}")
        assert ack["status"] == ("success" if may else "failure")


def test_a_user_who_is_removed_goes(server: RunningServer, tmp_path: Path) -> None:
    with logged_on(server, "ann") as ann, logged_on(server, "bob") as bob:
        write_users(tmp_path, USERS.replace("[users.bob]", "[users.bert]"))
        assert bob.is_disconnected()
        ann.flush()
    assert not may_log_on(server, "bob", "bob")
    assert may_log_on(server, "bert", "bob")
    assert server.logs("reloaded: 4 users, 0 of them with changed permissions")


def test_a_user_whose_role_changes_comes_back_with_other_permissions(
    server: RunningServer, tmp_path: Path
) -> None:
    with logged_on(server, "ann") as ann, logged_on(server, "bob") as bob:
        write_users(tmp_path, USERS.replace('"orders"', '"trades"'))
        assert ann.is_disconnected()
        bob.flush()
    with logged_on(server, "ann") as ann:
        assert ann.subscribe("trades", "1")["status"] == "success"
        assert ann.subscribe("orders", "2")["status"] == "failure"


def test_another_password_counts_from_the_next_logon_on(
    server: RunningServer, tmp_path: Path
) -> None:
    with logged_on(server, "ann") as ann:
        write_users(tmp_path, USERS.replace('"ANN"', f'"{hashed("new")}"'))
        assert comes_true(lambda: may_log_on(server, "ann", "new"))
        assert not may_log_on(server, "ann", "ann")
        ann.flush()


def test_of_a_broken_file_nothing_is_taken_over(server: RunningServer, tmp_path: Path) -> None:
    with logged_on(server, "ann") as ann:
        broken = write_users(tmp_path, USERS.replace('roles = ["trader"]', 'roles = ["trade"]'))
        assert server.logs(
            "cannot be used, and its previous content stays in effect: users.toml:11:"
            " users.ann.roles: there is no role 'trade'; did you mean trader?"
        )
        assert may_log_on(server, "ann", "ann")
        broken.unlink()
        assert server.logs("stays in effect: users.toml: cannot be read: No such file")
        assert may_log_on(server, "ann", "ann")
        ann.flush()
        write_users(tmp_path, USERS.replace("[users.ann]", "[users.anna]"))
        assert ann.is_disconnected()


def test_passwords_of_the_admin_interface(tmp_path: Path) -> None:
    write_users(tmp_path)
    port = free_port()

    def status(path: str, user: str = "") -> int:
        return ask(port, path, **basic(user)).status

    with running_server(tmp_path, elements=MODULES + ADMIN.format(port=port)):
        assert status("/amps/instance.json") == 401
        assert status("/amps/instance.json", "mallory") == 401
        assert status("/amps/instance.json", "ann") == 403
        assert status("/amps/instance.json", "carol") == 200
        assert status("/amps/host.json", "carol") == 403
        write_users(tmp_path, USERS.replace('"^/amps/instance"', '"^/amps/host"'))
        assert comes_true(lambda: status("/amps/host.json", "carol") == 200)
        assert status("/amps/instance.json", "carol") == 403
        write_users(tmp_path, USERS.replace("[users.carol]", "[users.caroline]"))
        assert comes_true(lambda: status("/amps/host.json", "carol") == 401)


@pytest.mark.parametrize("modules", [MODULES, MODULES.partition("<Entitlement>")[0]])
def test_a_cookie_is_of_no_use_to_who_has_gone(tmp_path: Path, modules: str) -> None:
    """Whether or not the file says what may be seen as well."""
    write_users(tmp_path)
    port = free_port()
    with running_server(tmp_path, elements=modules + ADMIN.format(port=port)):
        given = ask(port, "/amps/instance.json", **basic("carol")).headers["set-cookie"]
        cookie = given.partition(";")[0]
        assert ask(port, "/amps/instance.json", cookie=cookie).status == 200
        write_users(tmp_path, USERS.replace("[users.carol]", "[users.caroline]"))
        assert comes_true(
            lambda: ask(port, "/amps/instance.json", cookie=cookie).status in (401, 403)
        )


def test_a_cookie_ends_with_the_password_that_it_stands_for(tmp_path: Path) -> None:
    """Whoever has got hold of it has nothing any more; cookies of others, and clients, stay."""
    text = USERS + '\n[users.dora]\npassword = "DORA"\nroles = ["watcher"]\n'
    text += '\n[roles.watcher]\nadmin = [{ topic = "^/amps", read = true }]\n'
    text = text.replace('"DORA"', f'"{hashed("dora")}"')
    write_users(tmp_path, text)
    port = free_port()

    def cookie(user: str) -> str:
        given = ask(port, "/amps/instance.json", **basic(user)).headers["set-cookie"]
        return given.partition(";")[0]

    def status(shown: str) -> int:
        return ask(port, "/amps/instance.json", cookie=shown).status

    with (
        running_server(tmp_path, elements=MODULES + ADMIN.format(port=port)) as server,
        logged_on(server, "ann") as ann,
    ):
        carols, doras = cookie("carol"), cookie("dora")
        assert (status(carols), status(doras)) == (200, 200)
        write_users(tmp_path, text.replace('"CAROL"', f'"{hashed("new")}"'))
        assert comes_true(lambda: status(carols) == 401)
        assert ask(port, "/amps/instance.json", **basic("carol")).status == 401
        assert status(doras) == 200
        ann.flush()


def test_entitlement_without_authentication(tmp_path: Path) -> None:
    """Another module may say who a user is; the file says what they may do."""
    write_users(tmp_path)
    elements = MODULES.replace(
        "<Authentication><Module>users</Module></Authentication>",
        "<Authentication><Module>amps-default-authentication-module</Module>"
        "<Options><AllowSpoofing>true</AllowSpoofing></Options></Authentication>",
    )
    with running_server(tmp_path, elements=elements) as server:
        assert may_log_on(server, "guest", "")
        with server.connect() as peer:
            assert try_to_log_on(peer, "nobody", "")["reason"] == "not entitled"


def test_whoever_has_a_password_checked_keeps_nobody_waiting(tmp_path: Path) -> None:
    costly = USERS.replace('"ANN"', f'"{hashed("ann", 16)}"')
    write_users(tmp_path, costly)
    with running_server(tmp_path, elements=MODULES) as server:
        waiting = [server.connect() for _ in range(30)]
        with logged_on(server, "bob") as bob:
            for number, peer in enumerate(waiting):
                peer.send(
                    {"c": "logon", "mt": "json", "a": "processed", "client_name": str(number)}
                    | {"user_id": "ann", "pw": f"wrong {number}"}
                )
            bob.flush()
            assert waiting[-1].hears_nothing()
        for peer in waiting:
            peer.socket.close()


def test_the_same_credentials_are_checked_once() -> None:
    """Those who come meanwhile wait for the same check; after that there is nothing to wait for."""

    async def run() -> None:
        checks, expected = PasswordChecks(AsyncWorker()), read_hash(hashed("secret", 12))
        ann, bob = (LogonCredentials(name, "secret", explicit=True) for name in ("ann", "bob"))
        problems: list[str] = []
        first = checks.check_password(ann, expected, problems.append)
        assert isinstance(first, AnswerFuture)
        assert checks.check_password(ann, expected, problems.append) is first
        assert checks.check_password(bob, expected, problems.append) is not first
        answer: asyncio.Future[bool | None] = asyncio.get_running_loop().create_future()
        first.add_done_callback(answer.set_result)
        assert await answer is True
        assert checks.check_password(ann, expected, problems.append) is True
        other = read_hash(hashed("other", 12))
        assert isinstance(checks.check_password(ann, other, problems.append), AnswerFuture)
        checks.forget()
        assert isinstance(checks.check_password(ann, expected, problems.append), AnswerFuture)
        assert not problems

    asyncio.run(run())


def test_addresses_take_turns() -> None:
    """Somebody at another address is decided on before what one address has sent at once."""

    async def run() -> None:
        checks, expected = PasswordChecks(AsyncWorker()), read_hash(hashed("secret", 14))
        order: list[str] = []
        every = []
        for place, number in [
            *(("10.0.0.1:1000", number) for number in range(30)),
            ("10.0.0.2:1000", 0),
        ]:
            shown = LogonCredentials(
                "ann", f"{place} {number}", explicit=True, origin=LogonOrigin(address=place)
            )
            pending = checks.check_password(shown, expected, order.append)
            assert isinstance(pending, AnswerFuture)
            answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            every.append(answer)

            def take_note(
                _matches: bool | None, place: str = place, answer: asyncio.Future[None] = answer
            ) -> None:
                order.append(place)
                answer.set_result(None)

            pending.add_done_callback(take_note)
        await asyncio.gather(*every)
        assert order.index("10.0.0.2:1000") < 20

    asyncio.run(run())


def test_whom_nobody_knows_costs_as_much_as_others(tmp_path: Path) -> None:
    text = USERS.replace('"ANN"', f'"{hashed("ann", 9)}"').replace('"BOB"', f'"{hashed("b", 9)}"')
    path = write_users(tmp_path, text)
    file = UsersFile(str(path), BUILTINS, AsyncWorker(), RecordingLog())
    assert file.decoy_hash.cost.ln == 9


def test_a_hash_of_another_program_can_be_read() -> None:
    """The example of passlib's documentation."""
    text = (
        "$scrypt$ln=16,r=8,p=1$aM15713r3Xsvxbi31lqr1Q$nFNh2CVHVjNldFVKDHDlm4CbdRSCdEBsjjJxD+iCs5E"
    )
    assert str(read_hash(text)) == text
    assert read_hash(text).matches("password")
    assert not read_hash(text).matches("Password")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[users.ann\n", "users.toml:1: error: it is no TOML: Expected ']' at the end of a table"),
        ("\n\nx = {\n", "users.toml:3: error: it is no TOML: "),
        ("[user.ann]\n", "users.toml:1: error: user: is not known; did you mean users?"),
        ("users = 5\n", "users.toml:1: error: users: expected tables such as [users.NAME]"),
        ("[users]\nann = 5\n", "users.toml:2: error: users.ann: expected a table [users.ann]"),
        (
            "[users.ann]\n\npasword = 'x'\n",
            "users.toml:3: error: users.ann.pasword: is not known; did you mean password?",
        ),
        (
            "[users.ann]\npassword = 'secret'\n",
            "users.toml:2: error: users.ann.password: expected a hash as $scrypt$ln=15",
        ),
        (
            f"[users.ann]\npassword = '{hashed('a').replace('ln=4', 'ln=25')}'\n",
            "users.toml:2: error: users.ann.password: ln=25,r=8 takes more than 256 MiB",
        ),
        (
            "[users.ann]\nroles = ['x']\n",
            "users.toml:2: error: users.ann.roles: there is no role 'x'; expected a table",
        ),
        (
            "[users.ann]\nroles = 'x'\n",
            "users.toml:2: error: users.ann.roles: expected a list of names of roles",
        ),
        (
            "[users.ann]\nlogon = 'yes'\n",
            "users.toml:2: error: users.ann: logon: expected true or false, not 'yes'",
        ),
        (
            "[users.ann]\nlogon = true\ntopic = [\n  { topic = 'a' },\n  { topic = 'b',\n"
            "    read = '/x =' }]\n".replace(",\n    read", ", read"),
            "users.toml:5: error: users.ann: topic, entry 2: read: ",
        ),
        (
            "[[users.ann.topic]]\ntopic = 'a'\n\n[[users.ann.topic]]\ntopic = '('\n",
            "users.toml:5: error: users.ann: topic, entry 2: topic: ",
        ),
        (
            "[roles.a]\ntopic = [{ topic = 'a', select = '/a/', read = true }]\n",
            "users.toml:2: error: roles.a: topic, entry 1: select: ",
        ),
        (
            "[roles.a]\nuser_name = 'b'\n",
            "users.toml:2: error: roles.a.user_name: is not known; expected one of",
        ),
        (
            "[users.a]\ntopic = [{ topic = 'a', read = true }]\n",
            "users.toml:1: warning: users.a: topics are of no use to who may not log on",
        ),
        *(
            (
                f"[users.a]\npassword = ['{hashed('a')}', {more}]\n",
                "users.toml:2: error: users.a.password: expected a verifier as SCRAM-SHA-256$",
            )
            for more in ("'x'", "7", f"'{scram_of('a')}', '{scram_of('a')}'")
        ),
        (
            f"[users.a]\npassword = ['{scram_of('a')}']\n",
            "users.toml:2: error: users.a.password: expected a hash as $scrypt$",
        ),
        ("[users.a]\npassword = []\n", "users.toml:2: error: users.a.password: expected a hash"),
        (
            f"[users.a]\n# cheap\npassword = '{hashed('a')}'\n",
            "users.toml:3: warning: users.a.password: ln=4 lets passwords be tried",
        ),
    ],
)
def test_verification_says_what_is_wrong_in_which_line(
    tmp_path: Path, text: str, expected: str
) -> None:
    write_users(tmp_path, text)
    (tmp_path / "config.xml").write_text(
        f"<AMPSConfig><Name>x</Name><Transports/>{MODULES}</AMPSConfig>"
    )
    verified = amp_server("--verify-config", "config.xml", cwd=tmp_path)
    assert expected in verified.stderr
    assert verified.returncode == (1 if " error: " in expected else 0)


def test_verification_misses_a_file_and_the_option(tmp_path: Path) -> None:
    text = f"<AMPSConfig><Name>x</Name><Transports/>{MODULES}</AMPSConfig>"
    (tmp_path / "config.xml").write_text(text)
    said = amp_server("--verify-config", "config.xml", cwd=tmp_path)
    assert "config.xml:5: warning: Options/FileName: there is no file users.toml; a" in said.stderr
    assert said.returncode == 0
    text = text.replace("<FileName>users.toml</FileName>", "")
    (tmp_path / "config.xml").write_text(text)
    said = amp_server("--verify-config", "config.xml", cwd=tmp_path)
    assert "Options/FileName: is missing but required by libamperage_users.so" in said.stderr
    assert said.returncode == 1


def test_without_its_file_nothing_starts(tmp_path: Path) -> None:
    assert "users.toml: cannot be read: No such file" in why_no_start(tmp_path, MODULES)


def test_a_file_that_everybody_can_read_is_warned_of(tmp_path: Path) -> None:
    write_users(tmp_path).chmod(0o644)
    with running_server(tmp_path, elements=MODULES) as server:
        assert server.logs("all users of this machine can read it (mode 0644)")


PEERS = """<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>orders</Name><MessageType>json</MessageType></Topic>
</TransactionLog>"""
INCOMING = """<Transport>
  <Name>peers</Name><Type>amps-replication</Type><InetAddr>127.0.0.1:{port}</InetAddr>
</Transport>"""


def test_an_instance_whose_user_is_removed_goes(tmp_path: Path) -> None:
    link = f'[users.link]\npassword = "{hashed("link")}"\nreplication-logon = true\n'
    write_users(tmp_path, USERS + link)
    port = free_port()
    transport = INCOMING.format(port=port)
    with running_server(tmp_path, elements=MODULES + PEERS, transports=transport):
        with ReplicationPeer(port) as peer:
            peer.greet(user="ann", password="ann")
            assert "'ann' is not entitled to replicate to this instance" in peer.refusal()
        with ReplicationPeer(port) as peer:
            peer.greet(user="link", password="link")
            assert peer.receive().kind == HELLO
            write_users(tmp_path)
            assert peer.is_disconnected()
        with ReplicationPeer(port) as peer:
            peer.greet(user="link", password="link")
            assert "wrong user or password" in peer.refusal()
