"""Files that an instance was made from, and that change while it runs."""

from __future__ import annotations

from pathlib import Path

from tests.support.server import running_server

ELEMENTS = """
<Modules>
  <Module><Name>ours</Name><Library>./ours.py</Library></Module>
</Modules>
<UserDefinedFunctions>
  <Function>
    <Name>TWICE</Name><Module>ours</Module><Symbol>twice</Symbol>
    <ParameterCount>1</ParameterCount>
  </Function>
</UserDefinedFunctions>
<MessageTypes>
  <MessageType>
    <Name>orders-proto</Name><Module>protobuf</Module>
    <ProtoPath>shop;protos</ProtoPath>
    <ProtoFile>shop/order.proto</ProtoFile>
    <Type>shop.Order</Type>
  </MessageType>
</MessageTypes>
"""


def test_what_was_read_at_the_start_needs_a_restart(tmp_path: Path) -> None:
    """A definition, one that it imports, and code: each change is told, and nothing else is."""
    protos = tmp_path / "protos"
    protos.mkdir()
    (protos / "party.proto").write_text(
        'syntax = "proto3"; package shop; message Party { string name = 1; }'
    )
    (protos / "order.proto").write_text(
        'syntax = "proto3"; package shop; import "shop/party.proto";'
        " message Order { int32 id = 1; Party buyer = 2; }"
    )
    code = tmp_path / "ours.py"
    code.write_text("def twice(number):\n    return number * 2\n")
    with running_server(tmp_path, elements=ELEMENTS) as server:
        (protos / "another.proto").write_text("not ours")
        (protos / "party.proto").write_text("broken")
        assert server.logs("party.proto of the message type orders-proto has been modified; the")
        (protos / "order.proto").unlink()
        assert server.logs("order.proto of the message type orders-proto has been deleted; the")
        code.write_text("def twice(number):\n    return number + number\n")
        assert server.logs("ours.py of the module ours has been modified; the instance keeps")
        assert server.logs("00-0042", 3)
        assert server.stop() == 0
