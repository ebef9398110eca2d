"""Elements of topics, views and queues for tests of reloads, and what their topics have."""

from __future__ import annotations

from tests.support.raw import RawPeer
from tests.support.sow import receive_group


def topic(name: str, elements: str = "<Durability>transient</Durability>") -> str:
    """A SOW topic."""
    return (
        f"<Topic><Name>{name}</Name><MessageType>json</MessageType><Key>/id</Key>{elements}</Topic>"
    )


def recorded(name: str) -> str:
    """A topic of the transaction log."""
    return f"<Topic><Name>{name}</Name><MessageType>json</MessageType></Topic>"


def view(name: str, source: str) -> str:
    """A view that counts the records of each group."""
    return (
        f"<View><Name>{name}</Name><MessageType>json</MessageType>"
        f"<UnderlyingTopic>{source}</UnderlyingTopic><Projection><Field>/g</Field>"
        "<Field>COUNT(/id) AS /n</Field><Field>SUM(/v) AS /v</Field></Projection>"
        "<Grouping><Field>/g</Field></Grouping></View>"
    )


def conflated(name: str, source: str, elements: str = "") -> str:
    """A conflated topic."""
    return (
        f"<ConflatedTopic><Name>{name}</Name><MessageType>json</MessageType>"
        f"<UnderlyingTopic>{source}</UnderlyingTopic><Interval>100ms</Interval>{elements}</ConflatedTopic>"
    )


def queue(name: str, source: str, elements: str = "") -> str:
    """A queue of this instance."""
    return (
        f"<LocalQueue><Name>{name}</Name><MessageType>json</MessageType>"
        f"<UnderlyingTopic>{source}</UnderlyingTopic>"
        f"<MaxPerSubscriptionBacklog>10</MaxPerSubscriptionBacklog>{elements}</LocalQueue>"
    )


def records(peer: RawPeer, name: str) -> list[bytes] | None:
    """The records of a topic, sorted; None if it has none by configuration."""
    peer.send({"c": "sow", "cid": "q", "t": name, "a": "processed"})
    if peer.receive_header()["status"] != "success":
        return None
    return sorted(receive_group(peer).bodies)
