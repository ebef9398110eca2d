"""Completion in fish."""

from __future__ import annotations

from collections.abc import Iterator

from server.app.completion.lines import CompletionLine, CompletionOption, CompletionValue, WordKind


def script(command: str, line: CompletionLine) -> str:
    """Make the script that completes a command."""
    lines = [
        f"# Completes {command} in fish; made by {command} --print-completion fish.",
        *_scope(command, line, "__fish_use_subcommand" if line.commands else None),
    ]
    for name, command_line in line.commands.items():
        lines.append(
            f"complete -c {command} -f -n __fish_use_subcommand"
            f" -a {name} -d {_quoted(command_line.help)}"
        )
        lines += _scope(command, command_line, f"__fish_seen_subcommand_from {name}")
    return "\n".join(lines) + "\n"


def _scope(command: str, line: CompletionLine, condition: str | None) -> Iterator[str]:
    start = f"complete -c {command}"
    if condition is not None:
        start += f" -n {_quoted(condition)}"
    if not any(argument.value.kind is not WordKind.OTHER for argument in line.arguments):
        yield f"{start} -f"
    for argument in line.arguments:
        if argument.value.words:
            yield f"{start} -a {_quoted(' '.join(argument.value.words))}"
    for option in line.options:
        yield f"{start}{_names(option)}{_value(option.value)} -d {_quoted(option.help)}"


def _names(option: CompletionOption) -> str:
    text = ""
    for name in option.names:
        bare = name.lstrip("-")
        if name.startswith("--"):
            text += f" -l {bare}"
        else:
            text += f" -s {bare}" if len(bare) == 1 else f" -o {bare}"
    return text


def _value(value: CompletionValue | None) -> str:
    if value is None:
        return ""
    if value.words:
        return f" -x -a {_quoted(' '.join(value.words))}"
    if value.kind is WordKind.DIRECTORY:
        return " -x -a '(__fish_complete_directories)'"
    return " -r -F" if value.kind is WordKind.FILE else " -x"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
