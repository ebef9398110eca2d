"""Yes-or-no options of modules: every word that a configuration may use means what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from config_schema.compile import compile_config
from config_schema.document import load
from config_schema.problems import Problems
from config_schema.units import BOOLEANS
from config_schema.validate import validate
from server.app.wiring.catalogue import ProgramCatalogue
from tests.support.raw import RawPeer
from tests.support.server import free_port, running_server

WORDS = {**BOOLEANS, "TRUE": True, "Enabled": True, "Off": False}

TRANSPORT = """
<Transport>
  <Name>{name}</Name><Type>tcp</Type><InetAddr>127.0.0.1:{port}</InetAddr>
  <Protocol>amps</Protocol><MessageType>json</MessageType>
  <Authentication>
    <Module>{module}</Module><Options><{option}>{word}</{option}></Options>
  </Authentication>
</Transport>
"""

DEFAULT = "amps-default-authentication-module"
IMPLICIT = "amps-implicit-authentication-module"


def is_admitted_without_logon(peer: RawPeer) -> bool:
    """Whether a command is obeyed before a logon."""
    return bool(peer.subscribe("any", "1")["status"] == "success")


def is_admitted_without_name(peer: RawPeer) -> bool:
    """Whether a logon needs no user name."""
    return bool(peer.log_on("nobody")["status"] == "success")


def is_believed(peer: RawPeer) -> bool:
    """Whether the user name that a client gives is taken for its own."""
    logon = {"c": "logon", "cid": "1", "client_name": "x", "user_id": "ada", "a": "processed"}
    assert peer.ask(logon)["status"] == "success"
    peer.subscribe("whose", "1")
    peer.publish("whose", b"{}")
    return peer.receive()[0].get("user_id") == "ada"


@pytest.mark.parametrize(
    ("module", "option", "is_so", "where_true"),
    [
        (DEFAULT, "RequireLogon", is_admitted_without_logon, False),
        (DEFAULT, "RequireUsername", is_admitted_without_name, False),
        (DEFAULT, "AllowSpoofing", is_believed, True),
        (IMPLICIT, "AllowSpoofing", is_believed, True),
    ],
)
def test_options_of_authentication(
    tmp_path: Path, module: str, option: str, is_so: object, *, where_true: bool
) -> None:
    """None of the words that mean yes lets anybody in who should stay out."""
    assert callable(is_so)
    ports = {word: free_port() for word in WORDS}
    transports = "".join(
        TRANSPORT.format(name=f"for-{word}", port=port, module=module, option=option, word=word)
        for word, port in ports.items()
    )
    with running_server(tmp_path, transports=transports):
        for word, meaning in WORDS.items():
            with RawPeer(ports[word]) as peer:
                assert is_so(peer) is (where_true if meaning else not where_true), word


ELSEWHERE = """<AMPSConfig>
  <Name>test</Name>
  <MessageTypes>
    <MessageType>
      <Name>early</Name><Module>json</Module>
      <EarlyTerminationOptimization>{word}</EarlyTerminationOptimization>
    </MessageType>
  </MessageTypes>
  <Modules>
    <Module>
      <Name>chaining</Name><Library>libamps_id_chaining_key_generator.so</Library>
    </Module>
    <Module>
      <Name>stamper</Name>
      <Library>libamps_transport_filter_correlation_id_timestamper.so</Library>
    </Module>
  </Modules>
  <Transports>
    <Transport>
      <Name>tcp</Name><Type>tcp</Type><InetAddr>127.0.0.1:0</InetAddr><Protocol>amps</Protocol>
      <TransportFilter>
        <Module>stamper</Module>
        <Options>
          <Override>{word}</Override>
        </Options>
      </TransportFilter>
    </Transport>
  </Transports>
  <SOW>
    <Topic>
      <Name>chained</Name><MessageType>json</MessageType><Durability>transient</Durability>
      <KeyGenerator>
        <Module>chaining</Module>
        <Options>
          <Primary>/id</Primary><Secondary>/parent</Secondary><FileName>{directory}/c</FileName>
          <Validation>{word}</Validation>
        </Options>
      </KeyGenerator>
    </Topic>
  </SOW>
</AMPSConfig>
"""


@pytest.mark.parametrize("word", [*WORDS, "maybe", "y", "2", "truee"])
def test_options_of_other_modules(tmp_path: Path, word: str) -> None:
    """The same words everywhere; any other is an error with its place, whatever the module."""
    path = tmp_path / "config.xml"
    path.write_text(ELSEWHERE.format(word=word, directory=tmp_path))
    problems = Problems()
    document = load(str(path), defines={}, environ={}, problems=problems)
    assert document is not None
    compile_config(validate(document, problems), ProgramCatalogue(), problems)
    errors = [str(one) for one in problems if "is not a switch" in str(one)]
    assert problems.has_errors is (word not in WORDS)
    wrong = ["EarlyTerminationOptimization", "Override", "Validation"]
    assert [name for name in wrong if any(name in error for error in errors)] == (
        [] if word in WORDS else wrong
    )
