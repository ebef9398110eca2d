"""Bookmark subscriptions: messages from the transaction log, from a position on, in log order.

The log is the only source, also of later publishes: a replay that has reached the end waits until
more is on stable storage, and reads on. So there is no transition from replay to live at which a
message could be lost or duplicated, and the client receives nothing that a crash could undo. The
one exception is the option `live`, for clients that request it.

    LogReader reads the log for one subscription, or for several of a connection that were resumed
              together, at the client's pace: it pauses while the client has unread data
    Tail      reads once for all subscriptions that have caught up; one that falls behind returns
              to a log reader of its own
    Live      delivers messages before they are durable, from their topic, to a subscription that
              has caught up and requests that

    Replay    one subscription, in one of these states, paused, or still resolving its bookmark

A paginated replay has records of its own, and cuts its page from them (`historical_pages`).
Otherwise, the entries read pass through topics of the reader (`logged_topics`), which match, frame
and conflate as the topics of publishers do.

Source: AMPS User Guide, Replaying Messages with Bookmark Subscription.
"""
