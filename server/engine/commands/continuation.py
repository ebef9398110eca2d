"""Commands that are executed in steps, between which other tasks run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from server.security.deferred import AnswerFuture

CommandSteps: TypeAlias = Iterator[bool | AnswerFuture[Any]]
"""A command in steps.

Each step returns whether the next one may follow at once, or has to wait a little; or it returns
a pending value to wait for.
"""
