"""How clients prove who they are, and that the server is the right one, against real servers."""

from __future__ import annotations

import asyncio
import ssl
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from amperage.client import (
    AuthenticationError,
    Backoff,
    Credentials,
    CredentialsError,
    GaveUpError,
    SecretAuthenticator,
    SecretCommand,
    SecretFile,
    SecretSource,
    SecretVariable,
    TlsFileError,
    make_ssl_context,
)
from tests.client.shells import PATIENT, NewClient, NewHAClient
from tests.support.network import Network
from tests.support.server import RunningServer, free_port, running_server
from tests.support.waiting import WAIT_SECONDS
from tests.transports.support import Authority, transport

LIBRARY: Final = '''
from server.security.authentication import Admission, Challenge

class Sums:
    """Whoever knows the password is asked for sums; then the server shows that it knows it, too."""

    async def authenticate(self, credentials, previous):
        user, shown = credentials.user, credentials.password
        if shown == "token":
            return Admission(True, user, "")
        if previous is None:
            if shown != "secret":
                return Admission(False, "", "who is that?")
            return Admission(False, "", "how much?", challenge=Challenge(user + "*", "3"))
        asked = int(previous.challenge.password)
        if shown != str(2 * asked):
            return Admission(False, "", "wrong")
        if asked < 5:
            return Admission(False, "", "and?", challenge=Challenge(user, str(asked + 1)))
        return Admission(True, user.strip("*"), "", token="secret of the server")

def create_authentication(name, options):
    return Sums()
'''

MODULES: Final = """
<Modules><Module><Name>sums</Name><Library>./sums.py</Library></Module></Modules>
<Authentication><Module>sums</Module></Authentication>
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    directory = tmp_path_factory.mktemp("server")
    (directory / "sums.py").write_text(LIBRARY)
    with running_server(directory, elements=MODULES, level="trace") as running:
        yield running


@dataclass
class Calculating:
    """Answers to challenges, and looks at what the server shows."""

    factor: int = 2
    expected: str = "secret of the server"
    seen: list[Credentials] = field(default_factory=list)

    def authenticate(self, given: Credentials) -> Credentials:
        return given

    def retry(self, answered: Credentials) -> Credentials:
        self.seen.append(answered)
        return Credentials(answered.user, str(self.factor * int(answered.password or 0)))

    def completed(self, answered: Credentials) -> None:
        self.seen.append(answered)
        if answered.password != self.expected:
            raise CredentialsError("the server does not know the secret")


def uri(server: RunningServer, credentials: str = "ann:secret") -> str:
    return f"tcp://{credentials}@127.0.0.1:{server.port}/amps/json"


def logged_on(new_client: NewClient, server: RunningServer, **arguments: Any) -> None:
    """Log on, and do something."""
    credentials = arguments.pop("credentials", "ann:secret")

    async def scenario() -> None:
        async with new_client(**arguments) as client:
            await client.connect(uri(server, credentials))
            await client.logon()
            await client.flush()

    asyncio.run(scenario())


def test_challenges_are_answered_and_the_server_is_checked(
    new_client: NewClient, server: RunningServer
) -> None:
    calculating = Calculating()
    logged_on(new_client, server, authenticator=calculating)
    assert [tuple(one) for one in calculating.seen] == [
        ("ann*", "3"),
        ("ann*", "4"),
        ("ann*", "5"),
        (None, "secret of the server"),
    ]
    assert server.logs("authid           = 'ann'")


def test_a_wrong_answer_is_refused(new_client: NewClient, server: RunningServer) -> None:
    with pytest.raises(AuthenticationError, match="wrong"):
        logged_on(new_client, server, authenticator=Calculating(factor=3))


def test_a_server_that_is_not_the_right_one_is_left(
    new_client: NewClient, server: RunningServer
) -> None:
    async def scenario() -> None:
        client = new_client("suspicious", authenticator=Calculating(expected="another"))
        await client.connect(uri(server))
        with pytest.raises(CredentialsError, match="the server does not know the secret"):
            await client.logon()
        with pytest.raises(ConnectionError):
            await client.flush()

    asyncio.run(scenario())


def test_a_server_that_is_not_the_right_one_is_not_worked_with(
    new_ha_client: NewHAClient, server: RunningServer
) -> None:
    async def scenario() -> None:
        client = new_ha_client(
            [uri(server)],
            authenticator=Calculating(expected="another"),
            backoff=Backoff(first=0.01, longest=0.01, attempts=2),
        )
        with pytest.raises(GaveUpError, match="the server does not know the secret"):
            await client.connect()
        await client.close()

    asyncio.run(scenario())


def command(text: str) -> str:
    """A command that runs some Python."""
    return f'{sys.executable} -c "{text}"'


def written(directory: Path, content: bytes) -> SecretSource:
    (directory / "secret").write_bytes(content)
    return SecretFile(directory / "secret")


GOOD: Final[dict[str, Callable[[Path], SecretSource]]] = {
    "file": lambda directory: written(directory, b"token\r\n"),
    "variable": lambda _: SecretVariable("AMPS_TEST_TOKEN"),
    "variable with a file": lambda directory: (
        written(directory, b"token\n") and SecretVariable("AMPS_KEPT_TOKEN")
    ),
    "command": lambda _: SecretCommand(command("print('token')")),
    "command with words": lambda _: SecretCommand([sys.executable, "-c", "print('token')"]),
    "command for somebody": lambda _: SecretCommand(
        command("import os; print({'bob': 'token'}[os.environ['AMPS_USER_NAME']])")
    ),
}


@pytest.mark.parametrize("make", GOOD.values(), ids=GOOD)
def test_a_secret_may_be_kept_elsewhere(
    new_client: NewClient,
    server: RunningServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[Path], SecretSource],
) -> None:
    monkeypatch.setenv("AMPS_TEST_TOKEN", "token")
    monkeypatch.setenv("AMPS_KEPT_TOKEN_FILE", str(tmp_path / "secret"))
    authenticator = SecretAuthenticator(make(tmp_path), "bob")
    logged_on(new_client, server, authenticator=authenticator, credentials="x:y")
    assert server.logs("authid           = 'bob'")


BAD: Final[dict[str, tuple[Callable[[Path], SecretSource], str]]] = {
    "no file": (lambda directory: SecretFile(directory / "no"), "No such file or directory"),
    "an empty file": (lambda directory: written(directory, b"\n"), "there is nothing"),
    "too much": (lambda directory: written(directory, b"x" * 70_000), "at most 65536 bytes"),
    "no text": (lambda directory: written(directory, b"\xff"), "expected a text in UTF-8"),
    "no variable": (lambda _: SecretVariable("AMPS_NOT_THERE"), "variable AMPS_NOT_THERE"),
    "no program": (lambda _: SecretCommand("/no/such/program"), "cannot be run: No such file"),
    "no command": (lambda _: SecretCommand(""), "cannot be run"),
    "open quotes": (lambda _: SecretCommand("echo 'a"), "cannot be run: No closing quotation"),
    "a failure": (
        lambda _: SecretCommand(command("print('s3cret'); exit(3)")),
        "ended with exit code 3",
    ),
    "silence": (lambda _: SecretCommand(command("")), "there is nothing"),
    "for ever": (
        lambda _: SecretCommand(command("import time; time.sleep(99)"), 0.1),
        "took longer than 0.1 seconds",
    ),
    "without end": (lambda _: SecretCommand("yes s3cret"), "at most 65536 bytes"),
}


@pytest.mark.process
@pytest.mark.parametrize(("make", "why"), BAD.values(), ids=BAD)
def test_a_secret_that_is_not_to_be_had_is_an_error_without_it(
    tmp_path: Path, make: Callable[[Path], SecretSource], why: str
) -> None:
    authenticator = SecretAuthenticator(make(tmp_path))
    with pytest.raises(CredentialsError) as caught:
        authenticator.authenticate(Credentials("ann", None))
    assert why in str(caught.value)
    assert "s3cret" not in f"{caught.value!r}{authenticator!r}"


def test_a_logon_without_a_secret_ends(new_client: NewClient, server: RunningServer) -> None:
    missing = SecretAuthenticator(SecretVariable("AMPS_NOT_THERE"))
    with pytest.raises(CredentialsError, match="AMPS_NOT_THERE"):
        logged_on(new_client, server, authenticator=missing)


def test_a_token_that_has_been_renewed_is_shown_when_a_client_comes_again(
    new_ha_client: NewHAClient, server: RunningServer, tmp_path: Path
) -> None:
    """It is read for each logon, and waited for if it is not to be had."""
    path = tmp_path / "token"
    path.write_text("token")
    states: list[str] = []

    async def scenario() -> None:
        with Network() as network:
            port = network.lead("client", "server", server.port)
            async with new_ha_client(
                [f"tcp://bob@127.0.0.1:{port}/amps/json"],
                backoff=PATIENT,
                authenticator=SecretAuthenticator(SecretFile(path)),
                on_state=lambda event: states.append(event.state.name),
            ) as client:
                await client.connect()
                path.unlink()
                network.hang_up("client", "server")
                while states.count("DISCONNECTED") < 3:
                    await asyncio.sleep(0.01)
                path.write_text("token\n")
                await client.flush()

    asyncio.run(asyncio.wait_for(scenario(), WAIT_SECONDS))
    assert states.count("LOGGED_ON") == 2


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), "known")


@pytest.fixture(scope="module")
def secure_port(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A port where only those get in who show a certificate of the authority."""
    port = free_port()
    certificate, key = authority.issue("localhost")
    elements = (
        f"<InetAddr>127.0.0.1:{port}</InetAddr><Protocol>amps</Protocol>"
        f"<Certificate>{certificate}</Certificate><PrivateKey>{key}</PrivateKey>"
        f"<VerifyClient>true</VerifyClient><CAFile>{authority.file}</CAFile>"
    )
    directory = tmp_path_factory.mktemp("secure")
    with running_server(directory, transports=transport("secure", "tcps", elements)):
        yield port


def test_certificates_are_made_from_files(
    new_client: NewClient, secure_port: int, authority: Authority, tmp_path: Path
) -> None:
    certificate, key = authority.issue("client")
    both = tmp_path / "both.pem"
    both.write_bytes(certificate.read_bytes() + key.read_bytes())
    stranger = Authority(tmp_path, "stranger")

    async def ping(context: ssl.SSLContext | None) -> None:
        async with new_client(ssl_context=context) as client:
            await client.connect(f"tcps://localhost:{secure_port}/amps/json")
            await client.logon()

    asyncio.run(ping(make_ssl_context(authority.file, certificate, key)))
    asyncio.run(ping(make_ssl_context(authority.file, both)))
    for context in (
        None,
        make_ssl_context(stranger.file, certificate, key),
        make_ssl_context(authority.file, *stranger.issue("client")),
        make_ssl_context(authority.file),
    ):
        with pytest.raises(ConnectionError):
            asyncio.run(ping(context))


def test_files_that_cannot_be_used_are_named(authority: Authority, tmp_path: Path) -> None:
    certificate, _ = authority.issue("client")
    _, other = authority.issue("other")
    odd = tmp_path / "odd.pem"
    odd.write_text("odd")
    for files, said in (
        ((tmp_path / "no.pem",), "no.pem: No such file or directory"),
        ((odd,), "odd.pem: expected PEM format"),
        ((None, odd), "odd.pem: expected PEM format"),
        ((None, certificate), f"{certificate}: expected PEM format"),
        ((None, certificate, other), f"{certificate} with {other}: expected PEM format"),
        ((None, certificate, tmp_path / "no.key"), "No such file or directory"),
    ):
        with pytest.raises(TlsFileError) as caught:
            make_ssl_context(*files)
        assert said in str(caught.value)


def test_credentials_are_printed_without_the_password() -> None:
    assert repr(Credentials("ann", "s3cret")) == "Credentials(user='ann', password='***')"
    assert "s3cret" not in str(Credentials("ann", "s3cret"))
