"""The protobuf messages of Arrow Flight and Flight SQL, as far as the server uses them.

The definitions are tables, of which protobuf makes classes when the module is imported. Optional
fields have a presence (`HasField`), as in the original files. Texts that are no UTF-8 are refused.

Source: Flight.proto and FlightSql.proto of Apache Arrow, format 1.
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf import message_factory
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from server.sql.query.errors import SqlError
from server.sql.sqlstate import PROTOCOL_VIOLATION

FLIGHT_PACKAGE: Final = "arrow.flight.protocol"
SQL_PACKAGE: Final = "arrow.flight.protocol.sql"

_TYPES: Final = {
    "bool": FieldDescriptorProto.TYPE_BOOL,
    "bytes": FieldDescriptorProto.TYPE_BYTES,
    "enum": FieldDescriptorProto.TYPE_INT32,  # the same on the wire
    "int32": FieldDescriptorProto.TYPE_INT32,
    "int64": FieldDescriptorProto.TYPE_INT64,
    "string": FieldDescriptorProto.TYPE_STRING,
    "uint32": FieldDescriptorProto.TYPE_UINT32,
    "uint64": FieldDescriptorProto.TYPE_UINT64,
}

_ANY: Final = {"Any": "type_url:string:1 value:bytes:2"}

_FLIGHT: Final = {
    "HandshakeRequest": "protocol_version:uint64:1 payload:bytes:2",
    "HandshakeResponse": "protocol_version:uint64:1 payload:bytes:2",
    "BasicAuth": "username:string:2 password:string:3",
    "ActionType": "type:string:1 description:string:2",
    "Action": "type:string:1 body:bytes:2",
    "Result": "body:bytes:1",
    "SchemaResult": "schema:bytes:1",
    "FlightDescriptor": "type:enum:1 cmd:bytes:2",
    "Ticket": "ticket:bytes:1",
    "FlightEndpoint": "ticket:Ticket:1",
    "FlightInfo": (
        "schema:bytes:1 flight_descriptor:FlightDescriptor:2 endpoint:FlightEndpoint*:3"
        " total_records:int64:4 total_bytes:int64:5 ordered:bool:6"
    ),
    "FlightData": (
        "flight_descriptor:FlightDescriptor:1 data_header:bytes:2 app_metadata:bytes:3"
        " data_body:bytes:1000"
    ),
    "PutResult": "app_metadata:bytes:1",
    "CancelFlightInfoRequest": "info:FlightInfo:1",
    "CancelFlightInfoResult": "status:enum:1",
    "CloseSessionResult": "status:enum:1",
}

_SQL: Final = {
    "CommandGetCatalogs": "",
    "CommandGetDbSchemas": "catalog:string:1 db_schema_filter_pattern:string:2",
    "CommandGetTables": (
        "catalog:string:1 db_schema_filter_pattern:string:2 table_name_filter_pattern:string:3"
        " table_types:string*:4 include_schema:bool:5"
    ),
    "CommandGetTableTypes": "",
    "CommandGetPrimaryKeys": "catalog:string:1 db_schema:string:2 table:string:3",
    "CommandGetExportedKeys": "catalog:string:1 db_schema:string:2 table:string:3",
    "CommandGetImportedKeys": "catalog:string:1 db_schema:string:2 table:string:3",
    "CommandGetCrossReference": (
        "pk_catalog:string:1 pk_db_schema:string:2 pk_table:string:3"
        " fk_catalog:string:4 fk_db_schema:string:5 fk_table:string:6"
    ),
    "CommandGetSqlInfo": "info:uint32*:1",
    "CommandGetXdbcTypeInfo": "data_type:int32:1",
    "CommandStatementQuery": "query:string:1 transaction_id:bytes:2",
    "TicketStatementQuery": "statement_handle:bytes:1",
    "CommandPreparedStatementQuery": "prepared_statement_handle:bytes:1",
    "CommandStatementUpdate": "query:string:1 transaction_id:bytes:2",
    "CommandPreparedStatementUpdate": "prepared_statement_handle:bytes:1",
    "ActionCreatePreparedStatementRequest": "query:string:1 transaction_id:bytes:2",
    "ActionCreatePreparedStatementResult": (
        "prepared_statement_handle:bytes:1 dataset_schema:bytes:2 parameter_schema:bytes:3"
    ),
    "ActionClosePreparedStatementRequest": "prepared_statement_handle:bytes:1",
    "DoPutUpdateResult": "record_count:int64:1",
    "DoPutPreparedStatementResult": "prepared_statement_handle:bytes:1",
    "ActionCancelQueryRequest": "info:bytes:1",
    "ActionCancelQueryResult": "result:enum:1",
}


def _field(definition: str, number: int, kind: str, package: str) -> FieldDescriptorProto:
    is_repeated = kind.endswith("*")
    kind = kind.removesuffix("*")
    label = (
        FieldDescriptorProto.LABEL_REPEATED if is_repeated else FieldDescriptorProto.LABEL_OPTIONAL
    )
    field = FieldDescriptorProto(name=definition, number=number, label=label)
    if kind in _TYPES:
        field.type = _TYPES[kind]
    else:
        field.type = FieldDescriptorProto.TYPE_MESSAGE
        field.type_name = f".{package}.{kind}"
    return field


def _make_classes(package: str, definitions: dict[str, str]) -> dict[str, Any]:
    """Return the classes of the messages of a package, by name."""
    file = FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    for name, fields in definitions.items():
        message = file.message_type.add(name=name)
        for part in fields.split():
            definition, kind, number = part.split(":")
            field = _field(definition, int(number), kind, package)
            if kind in _TYPES:  # optional: each one is the only member of a oneof
                field.proto3_optional = True
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{definition}")
            message.field.append(field)
    pool = DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}"))
        for name in definitions
    }


_any: Final = _make_classes("google.protobuf", _ANY)["Any"]
_flight: Final = _make_classes(FLIGHT_PACKAGE, _FLIGHT)
_sql: Final = _make_classes(SQL_PACKAGE, _SQL)

_TYPE_URL: Final = f"type.googleapis.com/{SQL_PACKAGE}."


def make_flight(name: str, **fields: object) -> Any:
    """Return a message of Flight."""
    return _flight[name](**fields)


def parse_flight(name: str, data: bytes) -> Any:
    """Return a message of Flight.

    Raises:
        SqlError: the bytes are no such message.
    """
    return _parse(_flight[name], name, data)


def pack(name: str, **fields: object) -> bytes:
    """Return a message of Flight SQL, wrapped in Any."""
    value = _sql[name](**fields).SerializeToString()
    packed: bytes = _any(type_url=_TYPE_URL + name, value=value).SerializeToString()
    return packed


def serialize(name: str, **fields: object) -> bytes:
    """Return a message of Flight SQL without Any."""
    data: bytes = _sql[name](**fields).SerializeToString()
    return data


def unpack(data: bytes) -> tuple[str, Any]:
    """Return the name and the message that an Any has.

    Raises:
        SqlError: the bytes are no Any, or it has no known message of Flight SQL.
    """
    packed = _parse(_any, "Any", data)
    prefix, _, name = packed.type_url.rpartition(".")
    if f"{prefix}." != _TYPE_URL or name not in _sql:
        url = "".join(c if c.isprintable() else "?" for c in packed.type_url[:200])
        raise SqlError(PROTOCOL_VIOLATION, f'the server does not know the command "{url}"')
    return name, _parse(_sql[name], name, packed.value)


def _parse(message_class: Any, name: str, data: bytes) -> Any:
    try:
        return message_class.FromString(data)
    except DecodeError:
        raise SqlError(PROTOCOL_VIOLATION, f"the bytes are no message {name}") from None
