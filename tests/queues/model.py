"""A queue as a list that is searched from the front for every message: slow, and plain to see."""

from __future__ import annotations

from dataclasses import dataclass, field

from server.queues.core import QueueSettings
from tests.queues.support import FILTERS

NEVER = 1 << 60


@dataclass
class Message:
    txid: int
    time: int
    expires: int = NEVER
    priority: int = 0
    key: int = 0
    is_barrier: bool = False
    is_ours: bool = True
    holder: Worker | None = None
    until: int = NEVER  # when the lease ends
    not_before: int = 0  # when it may be delivered again
    deliveries: int = 0
    cancels: int = 0


@dataclass(eq=False)
class Worker:
    name: str
    order: int
    backlog: int
    content_filter: str | None
    served: int = 0
    has: set[int] = field(default_factory=set)

    def wants(self, message: Message) -> bool:
        return self.content_filter is None or FILTERS[self.content_filter](message.txid)


class Model:
    """What is in the queue, and who has it."""

    def __init__(self, settings: QueueSettings) -> None:
        self.settings = settings
        self.messages: dict[int, Message] = {}
        self.workers: dict[str, Worker] = {}
        self.deferred: dict[int, int] = {}
        self.seats = 0
        self.turn = 0
        self.gone: dict[int, str] = {}

    def publish(self, message: Message) -> None:
        came = self.deferred.pop(message.txid, -NEVER)
        if came + self.settings.deferred_ack_expiration > message.time:
            self.gone[message.txid] = "acknowledged"
        else:
            self.messages[message.txid] = message

    def join(self, name: str, backlog: int, content_filter: str | None) -> None:
        self.seats += 1
        limit = min(backlog, self.settings.max_per_subscription_backlog)
        self.workers[name] = Worker(name, self.seats, limit, content_filter, self.turn)

    def leave(self, name: str, now: int) -> None:
        worker = self.workers.pop(name)
        for txid in sorted(worker.has & self.messages.keys()):
            self.give_back(self.messages[txid], now)

    def finish(self, txid: int, how: str) -> None:
        self.gone[txid] = how
        self.let_go(self.messages.pop(txid))

    def let_go(self, message: Message) -> None:
        if message.holder is not None:
            message.holder.has.discard(message.txid)
        message.holder = None
        message.until = NEVER

    def give_back(self, message: Message, now: int, retry_at: int | None = None) -> None:
        self.let_go(message)
        limits = self.settings
        message.cancels += retry_at is not None
        message.not_before = retry_at or 0
        if message.expires <= now or (
            (limits.max_deliveries and message.deliveries >= limits.max_deliveries)
            or (
                retry_at is not None
                and limits.max_cancels
                and message.cancels >= limits.max_cancels
            )
        ):
            self.finish(message.txid, "expired")

    def acknowledge(self, txid: int, now: int) -> None:
        if txid in self.messages:
            if not self.messages[txid].is_barrier:
                self.finish(txid, "acknowledged")
            return
        for worker in self.workers.values():  # of at-most-once
            worker.has.discard(txid)

    def cancel(self, txid: int, now: int, delay: int) -> None:
        message = self.messages.get(txid)
        if message is not None and message.holder is not None:
            self.give_back(message, now, now + delay)

    def pass_time(self, now: int) -> None:
        for message in list(self.messages.values()):
            if message.until <= now:
                self.give_back(message, now)
        for message in list(self.messages.values()):
            if message.holder is None and message.is_ours and message.expires <= now:
                self.finish(message.txid, "expired")

    def deliver(self, now: int) -> dict[str, list[int]]:
        """Who gets what."""
        self.pass_time(now)
        got: dict[str, list[int]] = {}
        while (message := self.next_message(now)) is not None:
            if message.is_barrier:
                for worker in self.workers.values():
                    if worker.wants(message):
                        got.setdefault(worker.name, []).append(message.txid)
                self.finish(message.txid, "passed")
                continue
            self.turn += 1
            worker = min(self.able(message), key=self.turn_of)
            worker.served = self.turn
            worker.has.add(message.txid)
            got.setdefault(worker.name, []).append(message.txid)
            message.deliveries += 1
            if self.settings.at_most_once:
                del self.messages[message.txid]
                self.gone[message.txid] = "sent"
            else:
                message.holder = worker
                message.until = now + (self.settings.lease_period or NEVER)
        return got

    def next_message(self, now: int) -> Message | None:
        leased = sum(len(worker.has) for worker in self.workers.values())
        is_full = leased >= (self.settings.max_backlog or NEVER)
        keys: set[int] = set()
        if self.settings.keyed and self.settings.at_most_once:
            keys = {txid % 3 for worker in self.workers.values() for txid in worker.has}
        candidates = []
        for message in sorted(self.messages.values(), key=lambda each: each.txid):
            if message.is_barrier:
                if message.txid == min(self.messages) and self.workers:
                    return message
                break
            is_first = not (self.settings.keyed and message.key and message.key in keys)
            keys.add(message.key)
            if (
                is_first
                and not is_full
                and message.holder is None
                and message.is_ours
                and message.not_before <= now
                and self.able(message)
            ):
                candidates.append(message)
        return min(candidates, key=lambda each: (-each.priority, each.txid), default=None)

    def able(self, message: Message) -> list[Worker]:
        return [
            worker
            for worker in self.workers.values()
            if len(worker.has) < worker.backlog and worker.wants(message)
        ]

    def turn_of(self, worker: Worker) -> tuple[float, int]:
        match self.settings.fairness:
            case "fast":
                return 0, worker.order
            case "round-robin":
                return worker.served, worker.order
        return len(worker.has) / worker.backlog, worker.order

    def restart(self, now: int) -> None:
        self.workers.clear()
        for message in list(self.messages.values()):
            self.let_go(message)
            if not self.settings.max_deliveries:
                message.deliveries = 0
            elif message.deliveries >= self.settings.max_deliveries:
                self.finish(message.txid, "expired")
