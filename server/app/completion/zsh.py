"""Completion in zsh, by its function `_arguments`.

The script is for a directory of `fpath`, and can be sourced as well.
"""

from __future__ import annotations

from collections.abc import Iterator

from server.app.completion.lines import (
    CompletionArgument,
    CompletionLine,
    CompletionOption,
    CompletionValue,
    WordKind,
    function_name,
    quoted,
)


def script(command: str, line: CompletionLine) -> str:
    """Make the script that completes a command."""
    name = function_name(command)
    body = _with_commands(line) if line.commands else _arguments(line, 4)
    return (
        f"#compdef {command}\n"
        f"# Completes {command} in zsh; made by {command} --print-completion zsh.\n"
        f"{name}() {{\n"
        "    local curcontext=$curcontext context state line\n"
        "    typeset -A opt_args\n"
        f"{body}"
        "}\n"
        f"if [[ $funcstack[1] == {name} ]]; then\n"
        f'    {name} "$@"\n'
        "else\n"
        f"    compdef {name} {command}\n"
        "fi\n"
    )


def _with_commands(line: CompletionLine) -> str:
    commands = "".join(
        f"            {quoted(f'{_without_colons(name)}:{command_line.help}')}\n"
        for name, command_line in line.commands.items()
    )
    cases = "".join(
        f"                {name})\n{_arguments(command_line, 20)}                    ;;\n"
        for name, command_line in line.commands.items()
    )
    specs = [*_specs(line), quoted("1: :->command"), quoted("*:: :->rest")]
    return (
        f"{_call(specs, 4, '_arguments -C')}"
        "    case $state in\n"
        "        command)\n"
        "            local -a commands=(\n"
        f"{commands}"
        "            )\n"
        "            _describe command commands\n"
        "            ;;\n"
        "        rest)\n"
        "            case $words[1] in\n"
        f"{cases}"
        "            esac\n"
        "            ;;\n"
        "    esac\n"
    )


def _arguments(line: CompletionLine, indent: int) -> str:
    return _call([*_specs(line)], indent, "_arguments")


def _call(specs: list[str], indent: int, function: str) -> str:
    gap = " \\\n" + " " * (indent + 4)
    return " " * indent + gap.join([function, *specs]) + "\n"


def _specs(line: CompletionLine) -> Iterator[str]:
    for option in line.options:
        yield from _option(option)
    for argument in line.arguments:
        yield _argument(argument)


def _option(option: CompletionOption) -> Iterator[str]:
    """Yield a spec for each name of an option; names exclude each other unless it is repeatable."""
    others = f"({' '.join(option.names)})" if len(option.names) > 1 else ""
    before = "*" if option.is_repeatable else others
    for name in option.names:
        takes = _separator(name) if option.value is not None else ""
        value = "" if option.value is None else f":{_value(option.value)}"
        yield quoted(f"{before}{name}{takes}[{_escaped(option.help)}]{value}")


def _separator(name: str) -> str:
    """Return the mark in a spec that allows an option and its value in one word."""
    if name.startswith("--"):
        return "="
    return "+" if len(name) == 2 else ""


def _argument(argument: CompletionArgument) -> str:
    if argument.is_repeatable:
        return quoted(f"*:{_value(argument.value)}")
    return quoted(f"{'::' if argument.is_optional else ':'}{_value(argument.value)}")


def _value(value: CompletionValue) -> str:
    action = {WordKind.FILE: "_files", WordKind.DIRECTORY: "_files -/"}.get(value.kind, " ")
    if value.words:
        action = f"({' '.join(value.words)})"
    return f"{_without_colons(value.name)}:{action}"


def _escaped(text: str) -> str:
    for character in "\\[]":
        text = text.replace(character, f"\\{character}")
    return text


def _without_colons(text: str) -> str:
    return text.replace(":", "\\:")
