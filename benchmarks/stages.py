"""What sampled stacks say: in which stage the processor was, and in which function.

A stack has frames of Python, of modules that mypyc or Cython compiled, and of libraries. A sample
counts for the innermost frame of our own: what a library did, it did for that function. The module
of the function says the stage.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

OTHER: Final = "event loop"
"""The stage of samples that no function of ours had asked for."""
STAGES: Final[Mapping[str, str]] = {
    "wire": "cutting frames, headers",
    "engine": "scheduler, sessions",
    "engine.commands": "commands, acks",
    "engine.replays": "replays",
    "topics": "topics",
    "topics.subscriptions": "matching, deliveries",
    "topics.subscriptions.delivery.outbox": "sending",
    "topics.subscriptions.limits.slow_clients": "sending",
    "transports": "sending",
    "message_types": "fields of bodies",
    "expressions": "filters",
    "storage.sow": "records",
    "storage.journal": "the log",
    "statistics": "statistics",
    "security": "permissions",
    "app": OTHER,
}
"""What is done in a package, or module, of the server; the longest name that fits counts."""

_PYTHON: Final = re.compile(
    r"(?P<function>\S+) \((?:\S*/)?(?:amperage|server)/(?P<module>[\w/]+)\.(?:pyx?|c):\d+\)$"
)
_COMPILED: Final = re.compile(r"CPyDef_(\w+) ")
_BETWEEN: Final = "___"
"""What mypyc has between the parts of a name."""
_CALLS: Final = re.compile(
    r"(?:__)?(?:read|readv|recv|recvmsg|write|writev|send|sendmsg|sendto|pwrite|pwritev2?|pread"
    r"|fsync|fdatasync|sync_file_range|epoll_ctl|mmap|munmap|madvise)(?:64)? "
)
_WAITING: Final = re.compile(
    r"(?:epoll_wait|epoll_pwait|poll|select|sem_\w+|futex\w*|pthread_cond_\w+|clock_nanosleep) "
)
_LOCK: Final = "PyThread_acquire_lock_timed "


@dataclass(slots=True)
class Stages:
    """How often the processor was where.

    Attributes:
        samples: by stage.
        calls: of them, those in a system call.
        functions: by stage and function.
    """

    samples: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    functions: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, stack: Sequence[str], count: int, modules: Mapping[str, str]) -> None:
        """Count a stack.

        Args:
            stack: its frames, the innermost last.
            count: how often it was seen.
            modules: see `compiled_names`.
        """
        if _waits(stack):
            return
        stage, function = _owner(stack, modules)
        self.samples[stage] += count
        self.functions[stage, function] += count
        if _CALLS.match(stack[-1]):
            self.calls[stage] += count


def read(folded: Iterable[str], modules: Mapping[str, str]) -> Stages:
    """Count stacks as py-spy writes them: frames, separated by `;`, and how often.

    Args:
        folded: the lines.
        modules: see `compiled_names`.
    """
    stages = Stages()
    for line in folded:
        frames, _, count = line.rpartition(" ")
        stages.add(frames.split(";"), int(count), modules)
    return stages


def _waits(stack: Sequence[str]) -> bool:
    return bool(_WAITING.match(stack[-1])) or any(frame.startswith(_LOCK) for frame in stack)


def _owner(stack: Sequence[str], modules: Mapping[str, str]) -> tuple[str, str]:
    for frame in reversed(stack):
        found = _function(frame, modules)
        if found is not None:
            module, function = found
            return _stage(module), f"{module}: {function}"
    return OTHER, stack[-1]


def _function(frame: str, modules: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the module, without `server.` or `amperage.`, and the function of a frame of ours."""
    if compiled := _COMPILED.match(frame):
        return _compiled(compiled[1].split(_BETWEEN), modules)
    if python := _PYTHON.match(frame):
        return python["module"].replace("/", "."), python["function"]
    return None


def _compiled(parts: Sequence[str], modules: Mapping[str, str]) -> tuple[str, str]:
    """Return the module and the function: a module is shortened to its last, unique names."""
    for length in range(len(parts) - 1, 0, -1):
        module = modules.get(_BETWEEN.join(parts[:length]))
        if module is not None:
            return module, ".".join(parts[length:])
    return parts[0], ".".join(parts[1:])


def compiled_names(modules: Iterable[str]) -> Mapping[str, str]:
    """Names of modules (`wire.framing`) by how mypyc may shorten them in those of functions."""
    return {
        _BETWEEN.join(module.split(".")[start:]): module
        for module in modules
        for start in range(module.count(".") + 1)
    }


def _stage(module: str) -> str:
    while module not in STAGES and "." in module:
        module = module.rpartition(".")[0]
    return STAGES.get(module, module)
