"""The task that calls the handler of a subscription of an asyncio client.

`amperage.client.blocking_worker` has the thread of a blocking client.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from amperage.client.errors import ClientError
from amperage.client.message import AsyncMessageListener
from amperage.client.time_limit import TimeLimit

if TYPE_CHECKING:
    from amperage.client.aio_stream import AsyncMessageStream

_log: Final = logging.getLogger("amperage.client")


class AsyncMessageWorker:
    """Calls a handler with each message of a stream, one after the other, and awaits the results.

    Args:
        stream: the stream.
        handler: the handler, which may be a coroutine function. An exception in it ends the
            subscription.
        workers: the workers of the client; this one removes itself at its end.

    Attributes:
        error: the exception that the handler raised, or that ended the stream.
    """

    def __init__(
        self,
        stream: AsyncMessageStream,
        handler: AsyncMessageListener,
        workers: set[AsyncMessageWorker],
    ) -> None:
        self._stream = stream
        self._handler = handler
        self._workers = workers
        self._is_stopped = False
        self._busy = asyncio.Lock()  # held while the handler is called
        self.error: Exception | None = None
        workers.add(self)
        self._task = asyncio.get_running_loop().create_task(self._run())

    @property
    def is_of_queue(self) -> bool:
        """Whether the messages are leased from a queue."""
        return self._stream.backlog is not None

    async def stop(self, limit: TimeLimit) -> None:
        """Call the handler no more, and wait until a call in progress has returned.

        Raises:
            TimedOutError: the call did not return in time.
        """
        self._is_stopped = True
        try:
            async with asyncio.timeout(limit.remaining_s), self._busy:
                return
        except TimeoutError:
            raise limit.timeout_error(f"the end of the handler of {self._stream.id}") from None

    async def wait(self, limit: TimeLimit) -> None:
        """Wait until the stream has ended and the handler was called with its last message.

        Raises:
            TimedOutError: that did not happen in time.
            RuntimeError: the handler itself waits.
        """
        if asyncio.current_task() is self._task:
            raise RuntimeError("a handler cannot wait for its own end")
        await asyncio.wait([self._task], timeout=limit.remaining_s)
        if not self._task.done():
            raise limit.timeout_error(f"the end of the handler of {self._stream.id}")

    async def _run(self) -> None:
        try:
            while (message := await self._stream.next()) is not None:
                async with self._busy:
                    if self._is_stopped:
                        return
                    result = self._handler(message)
                    if inspect.isawaitable(result):
                        await result
                    await self._stream.done()
        except ClientError as error:
            self.error = error
            _log.warning("the subscription %s has ended: %s", self._stream.id, error)
        except Exception as failure:
            self.error = failure
            _log.exception("the handler of %s has failed: the subscription ends", self._stream.id)
            with suppress(ClientError):
                await self._stream.unsubscribe()
        finally:
            self._workers.discard(self)
