"""Lets one test drive both shells: the blocking client in the clothes of the asyncio client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Self, cast

from amperage.client import (
    AsyncClient,
    AsyncHAClient,
    Backoff,
    Client,
    HAClient,
    Message,
    MessageStream,
    connect,
    connect_async,
)

NewClient = Callable[..., AsyncClient]
NewHAClient = Callable[..., AsyncHAClient]
Connect = Callable[..., Awaitable[AsyncHAClient]]

PATIENT = Backoff(first=0.01, longest=0.1)
"""For servers that are killed, and soon back."""


class _Disguised:
    """Makes each method of a blocking object a coroutine."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._inner, name)
        if not callable(attribute):
            return attribute

        async def call(*arguments: Any, **keywords: Any) -> Any:
            result = attribute(*arguments, **keywords)
            return _Disguised(result) if isinstance(result, MessageStream) else result

        return call

    def __repr__(self) -> str:
        return repr(self._inner)

    async def __aenter__(self) -> Self:
        self._inner.__enter__()
        return self

    async def __aexit__(self, *exception: Any) -> None:
        self._inner.__exit__(*exception)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        try:
            message: Message = next(self._inner)
        except StopIteration:
            raise StopAsyncIteration from None
        return message


def blocking_client(*arguments: Any, **keywords: Any) -> AsyncClient:
    """A blocking client that is awaited."""
    return cast(AsyncClient, _Disguised(Client(*arguments, **keywords)))


def blocking_ha_client(*arguments: Any, **keywords: Any) -> AsyncHAClient:
    """A blocking client that stays connected, awaited."""
    return cast(AsyncHAClient, _Disguised(HAClient(*arguments, **keywords)))


SHELLS: dict[str, NewClient] = {"blocking": blocking_client, "asyncio": AsyncClient}
HA_SHELLS: dict[str, NewHAClient] = {
    "blocking": blocking_ha_client,
    "asyncio": AsyncHAClient,
}


async def blocking_connect(*arguments: Any, **keywords: Any) -> AsyncHAClient:
    """`connect`, awaited."""
    return cast(AsyncHAClient, _Disguised(connect(*arguments, **keywords)))


CONNECTS: dict[str, Connect] = {"blocking": blocking_connect, "asyncio": connect_async}
