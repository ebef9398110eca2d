"""Compiles the `.proto` files of a configuration when it is loaded.

The compiler is Google's own `protoc`, as packaged by `grpcio-tools`. It runs once per message type
in a process of its own, since it writes its errors to the standard error stream. It maps a
`ProtoPath` alias to a directory as the reference describes, and reports file, line and column of an
error.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from difflib import get_close_matches
from pathlib import Path as FilePath
from typing import TYPE_CHECKING

from google.protobuf import message_factory
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool

from server.message_types.base import MessageTypeError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import Message

_TIME_LIMIT = 60
"""Timeout of the compiler, in seconds."""

_DESCRIPTOR_FILE = "google/protobuf/descriptor.proto"


def compile_message(
    proto_paths: Sequence[str], proto_file: str, type_name: str
) -> tuple[type[Message], str]:
    """Compile a file and all its imports, and find a message in them.

    In the result, text fields are `bytes`: bodies may hold text that is not UTF-8.

    Args:
        proto_paths: `alias;directory`, or a directory alone, which has the empty alias.
        proto_file: the file, with its alias, if any, as the first part of its path.
        type_name: the message with its package.

    Returns:
        The message's class, and its syntax: "proto2" or "proto3".

    Raises:
        MessageTypeError: a directory, the file or the message is missing, or a file has errors.
    """
    directories = [_directory(text) for text in proto_paths]
    files = _compile(directories, proto_file).file
    pool = DescriptorPool()
    for file in files:
        if file.name != _DESCRIPTOR_FILE:
            for message in file.message_type:
                _keep_bytes(message)
        pool.Add(file)
    messages = {name: file for file in files for name in _message_names(file)}
    defining_file = messages.get(type_name.lstrip("."))
    if defining_file is None:
        raise MessageTypeError("Type", _no_such_message(type_name, messages))
    syntax = defining_file.syntax or "proto2"
    if syntax not in ("proto2", "proto3"):
        raise MessageTypeError(
            "ProtoFile", f"{defining_file.name} uses an edition, expected syntax proto2 or proto3"
        )
    descriptor = pool.FindMessageTypeByName(type_name.lstrip("."))
    return message_factory.GetMessageClass(descriptor), syntax


def source_files(proto_paths: Sequence[str], message: type[Message]) -> tuple[FilePath, ...]:
    """Return the source files of a message: its own, and all its imports.

    Args:
        proto_paths: see `compile_message`.
        message: the message's class.
    """
    directories = [_directory(text) for text in proto_paths]
    paths: dict[str, FilePath] = {}
    waiting = [message.DESCRIPTOR.file]
    while waiting:
        file = waiting.pop()
        for alias, directory in directories:
            if file.name not in paths and _candidate(alias, directory, file.name):
                paths[file.name] = _inside(alias, directory, file.name)
                waiting += file.dependencies
    return tuple(paths.values())


def _directory(text: str) -> tuple[str, FilePath]:
    """Split a ProtoPath into alias and directory."""
    alias, semicolon, path = text.partition(";")
    if not semicolon:
        alias, path = "", text
    directory = FilePath(path.strip()).absolute()
    if not path.strip() or not directory.is_dir():
        raise MessageTypeError(
            "ProtoPath", f"{text!r}: there is no such directory, expected [alias;]directory"
        )
    if ":" in str(directory):
        raise MessageTypeError("ProtoPath", f"{text!r}: the compiler takes no path with a colon")
    return alias.strip(), directory


def _compile(directories: Sequence[tuple[str, FilePath]], proto_file: str) -> FileDescriptorSet:
    if not any(_candidate(alias, path, proto_file) for alias, path in directories):
        searched = ", ".join(f"{alias or '(no alias)'} = {path}" for alias, path in directories)
        raise MessageTypeError("ProtoFile", f"{proto_file} is in no ProtoPath: {searched}")
    with tempfile.TemporaryDirectory() as scratch:
        output = FilePath(scratch, "descriptors")
        command = [
            sys.executable,
            *("-m", "grpc_tools.protoc"),
            *(f"-I{alias}={path}" for alias, path in directories),
            *("--include_imports", f"--descriptor_set_out={output}", proto_file),
        ]
        try:
            # The operator writes the configuration: its paths are trusted input.
            result = subprocess.run(  # noqa: S603 - see above; no shell is involved
                command,
                cwd=scratch,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_TIME_LIMIT,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise MessageTypeError(
                "ProtoFile", f"{proto_file} took longer than {_TIME_LIMIT} s to compile"
            ) from None
        if result.returncode:
            raise MessageTypeError(
                "ProtoFile", f"{proto_file} does not compile: {_errors(result.stderr)}"
            )
        return FileDescriptorSet.FromString(output.read_bytes())


def _candidate(alias: str, directory: FilePath, proto_file: str) -> bool:
    """Return whether the file exists in the directory of this alias."""
    fits = not alias or proto_file.startswith(f"{alias}/")
    return fits and _inside(alias, directory, proto_file).is_file()


def _inside(alias: str, directory: FilePath, proto_file: str) -> FilePath:
    return FilePath(directory, proto_file.removeprefix(f"{alias}/") if alias else proto_file)


def _errors(output: str) -> str:
    """Return the errors of the compiler, without warnings, each as `file:line:column: error`."""
    lines = [
        line.strip()
        for line in output.splitlines()
        if line.strip() and "warning:" not in line.lower() and not line.startswith("W0")
    ]
    return "; ".join(lines) or "the compiler gave no reason"


def _no_such_message(type_name: str, messages: dict[str, FileDescriptorProto]) -> str:
    qualified = [name for name in messages if name.endswith(f".{type_name}")]
    near = qualified or get_close_matches(type_name, messages, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"there is no message {type_name!r}, expected its name with the package{hint}"


def _message_names(file: FileDescriptorProto) -> Iterator[str]:
    prefix = f"{file.package}." if file.package else ""
    for message in file.message_type:
        yield from _nested_names(message, prefix)


def _nested_names(message: DescriptorProto, prefix: str) -> Iterator[str]:
    if not message.options.map_entry:
        yield prefix + message.name
    for nested in message.nested_type:
        yield from _nested_names(nested, f"{prefix}{message.name}.")


def _keep_bytes(message: DescriptorProto) -> None:
    """Change text fields to `bytes`, which are encoded the same; keys of maps cannot be bytes."""
    for field in message.field:
        is_key = message.options.map_entry and field.number == 1
        if field.type == FieldDescriptorProto.TYPE_STRING and not is_key:
            field.type = FieldDescriptorProto.TYPE_BYTES
            if field.HasField("default_value"):
                field.default_value = _escaped(field.default_value)
    for nested in message.nested_type:
        _keep_bytes(nested)


def _escaped(default: str) -> str:
    """Return the default of a text field in the syntax of defaults of `bytes` fields."""
    return "".join(
        chr(byte) if 0x20 <= byte < 0x7F and byte not in b"\\\"'" else f"\\{byte:03o}"
        for byte in default.encode()
    )
