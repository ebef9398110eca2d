"""A client inside the server: publishes and subscribes like any other, but has no connection.

It is not listed among the sessions, nobody is told of what it does, it is asked for no user, and it
may do everything. What it publishes takes the same way as any client's publish.
Source: AMPS User Guide, Publish Message; On Message Published to AMPS.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.commands.dispatch import AFTER_LOGON
from server.commands.options import split_options
from server.commands.subscribe import prepare
from server.security.authentication import make_authenticator
from server.security.entitlement import make_entitlement
from server.session import Entrance, Link, Session
from server.wire.framing import FrameReader
from server.wire.header import Header

if TYPE_CHECKING:
    from server.engine import Engine
    from server.subscriptions.sink import Sink
    from server.subscriptions.subscription import Subscription


class InternalClient:
    """A client inside the server.

    Args:
        engine: the engine.
        name: its client name.
        message_type: what it speaks.
    """

    def __init__(self, engine: Engine, name: str, message_type: str) -> None:
        entrance = Entrance(
            transport="",
            message_type=message_type,
            authenticator=make_authenticator(None),
            entitlement=make_entitlement(None),
        )
        link = Link("", send=lambda _: None, hang_up=lambda: None)
        number = engine.number_internal_client()
        self._session = Session(engine, number, entrance, name, link, FrameReader())
        self._session.log_on(name, message_type)
        self._engine = engine

    def publish(self, topic: str, body: bytes, command: str = "publish") -> None:
        """Publish a message.

        Args:
            topic: where.
            body: what.
            command: `publish` or `delta_publish`.

        Raises:
            CommandRefused: the topic cannot be published to.
        """
        self._session.last_heard = self._engine.clock.now()
        AFTER_LOGON[command](self._session, Header(command=command, topic=topic), body)

    def subscribe(
        self, topic: str, sink: Sink, filter_text: str | None, options: str | None
    ) -> Subscription:
        """Subscribe; a client of this kind has one subscription at most.

        Args:
            topic: a topic or a regular expression over topics.
            sink: takes the messages.
            filter_text: what messages must match.
            options: options of the command.

        Raises:
            CommandRefused: something about the subscription cannot be.
        """
        header = Header(
            command="subscribe", topic=topic, short_filter=filter_text, short_options=options
        )
        chosen = split_options(options or "")
        subscription = prepare(self._session, header, chosen, sink=sink)
        self._session.place(subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """End a subscription."""
        self._session.remove_subscription(subscription.sub_id)
