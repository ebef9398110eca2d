"""Completion in bash.

The function examines the preceding word and the command that has been typed. Names of files are
left to bash, which quotes them best: it completes them where the function returns no words.
"""

from __future__ import annotations

from collections.abc import Iterator

from server.app.completion.lines import (
    CompletionLine,
    CompletionValue,
    WordKind,
    function_name,
    quoted,
)

_FILES = "return"
_NO_WORDS = "compopt +o default; return"
_DIRECTORIES = 'compopt -o filenames; mapfile -t COMPREPLY < <(compgen -d -- "$word"); return'


def script(command: str, line: CompletionLine) -> str:
    """Make the script that completes a command."""
    name = function_name(command)
    return (
        f"# Completes {command} in bash; made by {command} --print-completion bash.\n"
        f"{name}() {{\n"
        "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}\n"
        "    local command='' options='' words=''\n"
        "    COMPREPLY=()\n"
        "    # The equals sign of --option=value is a word of its own.\n"
        "    if [[ $word == = ]]; then\n"
        "        word=''\n"
        "    elif [[ $before == = ]]; then\n"
        "        before=${COMP_WORDS[COMP_CWORD - 2]}\n"
        "    fi\n"
        f"{''.join(_find_command(line))}"
        "    # What is to follow the word before.\n"
        '    case "$command $before" in\n'
        f"{''.join(_values(line))}"
        "    esac\n"
        "    # What may stand anywhere.\n"
        "    case $command in\n"
        f"{''.join(_words(line))}"
        "    esac\n"
        "    if [[ $word == -* ]]; then\n"
        "        words=$options\n"
        "    fi\n"
        '    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")\n'
        "}\n"
        f"complete -o default -F {name} {command}\n"
    )


def _find_command(line: CompletionLine) -> Iterator[str]:
    if line.commands:
        yield "    local one\n"
        yield '    for one in "${COMP_WORDS[@]:1:COMP_CWORD - 1}"; do\n'
        yield f"        case $one in {'|'.join(line.commands)}) command=$one; break ;; esac\n"
        yield "    done\n"


def _scopes(line: CompletionLine) -> Iterator[tuple[str, CompletionLine]]:
    yield "", line
    yield from line.commands.items()


def _values(line: CompletionLine) -> Iterator[str]:
    for command, scope in _scopes(line):
        for option in scope.options:
            if option.value is not None:
                pattern = "|".join(quoted(f"{command} {name}") for name in option.names)
                yield f"        {pattern}) {_reply(option.value)} ;;\n"


def _reply(value: CompletionValue) -> str:
    if value.words:
        words = quoted(" ".join(value.words))
        return f'mapfile -t COMPREPLY < <(compgen -W {words} -- "$word"); return'
    return {WordKind.FILE: _FILES, WordKind.DIRECTORY: _DIRECTORIES}.get(value.kind, _NO_WORDS)


def _words(line: CompletionLine) -> Iterator[str]:
    for command, scope in _scopes(line):
        options = " ".join(name for option in scope.options for name in option.names)
        words = " ".join(
            [
                *scope.commands,
                *(word for argument in scope.arguments for word in argument.value.words),
            ]
        )
        yield f"        {quoted(command)}) options={quoted(options)} words={quoted(words)} ;;\n"
