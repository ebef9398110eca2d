"""Actions that run on a request to the admin interface."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RequestedAction:
    """An action that runs on a request.

    Attributes:
        path: the last part of its path.
        name: its display name.
        description: its description, in the words of the configuration.
        required_parameters: parameters that a request must have.
        post: schedules a run; takes the parameters of the request.
    """

    path: str
    name: str
    description: str
    required_parameters: tuple[str, ...]
    post: Callable[[Mapping[str, bytes]], None]
