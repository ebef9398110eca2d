"""Live queries and channels: SUBSCRIBE, LISTEN and NOTIFY.

    topic -> subscription -> LiveFeed (engine's thread) -> LiveRows (worker thread) -> client
    topic -> subscription -> ChannelSink -> NotificationQueue (engine's thread) -> client

A SUBSCRIBE places a subscription that tracks focus, and opens a snapshot in the same step of the
engine, so no change is missed or repeated. A change of a record becomes a row of its old state with
`_diff` -1, and one of its new state with 1, where the user and the condition see them.
"""
