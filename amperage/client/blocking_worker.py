"""The thread that calls the handler of a subscription of a blocking client.

`amperage.client.aio_worker` has the task of an asyncio client. Each subscription has a thread of
its own, so that a slow handler delays no other.
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from amperage.client.arguments import call_blocking_callback
from amperage.client.errors import ClientError
from amperage.client.message import MessageListener
from amperage.client.time_limit import TimeLimit

if TYPE_CHECKING:
    from amperage.client.blocking_stream import MessageStream

_log: Final = logging.getLogger("amperage.client")


class MessageWorker:
    """Calls a handler with each message of a stream, one after the other.

    Args:
        stream: the stream.
        handler: the handler. An exception in it ends the subscription.
        workers: the workers of the client; this one removes itself at its end.

    Attributes:
        error: the exception that the handler raised, or that ended the stream.
    """

    def __init__(
        self, stream: MessageStream, handler: MessageListener, workers: set[MessageWorker]
    ) -> None:
        self._stream = stream
        self._handler = handler
        self._workers = workers
        self._is_stopped = False
        self._busy = threading.Lock()  # held while the handler is called
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=f"amps {stream.id}", daemon=True)
        workers.add(self)
        self._thread.start()

    @property
    def is_of_queue(self) -> bool:
        """Whether the messages are leased from a queue."""
        return self._stream.backlog is not None

    def stop(self, limit: TimeLimit) -> None:
        """Call the handler no more, and wait until a call in progress has returned.

        Raises:
            TimedOutError: the call did not return in time.
        """
        self._is_stopped = True
        if not self._busy.acquire(timeout=_lock_timeout(limit)):
            raise limit.timeout_error(f"the end of the handler of {self._stream.id}")
        self._busy.release()

    def wait(self, limit: TimeLimit) -> None:
        """Wait until the stream has ended and the handler was called with its last message.

        Raises:
            TimedOutError: that did not happen in time.
            RuntimeError: the handler itself waits.
        """
        if threading.current_thread() is self._thread:
            raise RuntimeError("a handler cannot wait for its own end")
        self._thread.join(limit.remaining_s)
        if self._thread.is_alive():
            raise limit.timeout_error(f"the end of the handler of {self._stream.id}")

    def _run(self) -> None:
        try:
            while (message := self._stream.next()) is not None:
                with self._busy:
                    if self._is_stopped:
                        return
                    call_blocking_callback("on_message", self._handler, message)
                    self._stream.done()
        except ClientError as error:
            self.error = error
            _log.warning("the subscription %s has ended: %s", self._stream.id, error)
        except Exception as failure:
            self.error = failure
            _log.exception("the handler of %s has failed: the subscription ends", self._stream.id)
            with suppress(ClientError):
                self._stream.unsubscribe()
        finally:
            self._workers.discard(self)


def _lock_timeout(limit: TimeLimit) -> float:
    remaining_s = limit.remaining_s
    return -1.0 if remaining_s is None else min(remaining_s, threading.TIMEOUT_MAX)
