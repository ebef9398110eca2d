"""Functions of Python libraries: declared in a configuration, called by expressions."""

from pathlib import Path

import pytest

from config_schema.compile import compile_config
from config_schema.document import load
from config_schema.problems import Problems
from config_schema.spec import InstanceSpec
from config_schema.validate import validate
from server.app.wiring.catalogue import ProgramCatalogue
from server.app.wiring.provision import ProvisionError, check_provisions, provision_functions
from server.expressions import Functions
from server.log.event_log import EventLog

CONFIGURATION = """
<AMPSConfig>
  <Name>test</Name>
  <Modules><Module><Name>ours</Name><Library>{library}</Library></Module></Modules>
  <UserDefinedFunctions>
    <Function>
      <Name>Doubled</Name><Module>ours</Module><Symbol>double</Symbol>
      <ParameterCount>1</ParameterCount>
    </Function>
  </UserDefinedFunctions>
</AMPSConfig>
"""


def spec_of(directory: Path, source: str, configuration: str = CONFIGURATION) -> InstanceSpec:
    """Compile a configuration beside a library with this source."""
    library = directory / "ours.py"
    library.write_text(source)
    path = directory / "config.xml"
    path.write_text(configuration.format(library=library, directory=directory))
    problems = Problems()
    document = load(str(path), defines={}, environ={}, problems=problems)
    assert document is not None
    spec = compile_config(validate(document, problems), ProgramCatalogue(), problems)
    assert spec is not None, [str(problem) for problem in problems]
    return spec


def provision(spec: InstanceSpec) -> Functions:
    log = EventLog(spec.logging, spec.name)
    try:
        return provision_functions(spec, log)
    finally:
        log.close()


def test_a_function_of_a_library_can_be_called(tmp_path: Path) -> None:
    functions = provision(spec_of(tmp_path, "def double(value):\n    return value * 2\n"))
    doubled = functions["DOUBLED"].bind(1)
    assert doubled(21) == 42


def test_a_function_that_fails_gives_null(tmp_path: Path) -> None:
    functions = provision(spec_of(tmp_path, "def double(value):\n    return value / 0\n"))
    assert functions["DOUBLED"].bind(1)(21) is None


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("1 / 0\n\ndef double(value): ...\n", "ours.py:1: ZeroDivisionError: division by zero"),
        ("import no_such_module\n\ndef double(value): ...\n", "No module named 'no_such_module'"),
        ("double = 2\n", "has no function double"),
    ],
)
def test_what_only_running_tells_is_located_by_the_start(
    tmp_path: Path, source: str, complaint: str
) -> None:
    spec = spec_of(tmp_path, source)
    with pytest.raises(ProvisionError) as raised:
        provision(spec)
    assert str(raised.value).startswith(f"{tmp_path}/config.xml:6: function Doubled: ")
    assert complaint in str(raised.value)


PROTOBUF = """
<AMPSConfig>
  <Name>test</Name>
  <MessageTypes>
    <MessageType>
      <Name>order</Name><Module>protobuf</Module>
      <ProtoPath>{directory}</ProtoPath>
      <ProtoFile>{file}</ProtoFile>
      <Type>Order</Type>
    </MessageType>
  </MessageTypes>
</AMPSConfig>
"""


@pytest.mark.process
def test_the_check_finds_definitions_that_are_missing(tmp_path: Path) -> None:
    """The problem is located at the option that is to blame."""
    (tmp_path / "order.proto").write_text('syntax = "proto3"; message Order { int32 id = 1; }')
    found = []
    for file in ("order.proto", "oder.proto"):
        spec = spec_of(tmp_path, "", PROTOBUF.replace("{file}", file))
        problems = Problems()
        check_provisions(spec, problems)
        found.append([str(problem) for problem in problems])
    good, missing = found
    assert good == []
    assert len(missing) == 1
    assert missing[0].startswith(f"{tmp_path}/config.xml:8: error: MessageType/ProtoFile: ")
    assert "oder.proto" in missing[0]
