"""Bookmark subscriptions: messages from the transaction log, from some point on, in their order.

The log is the only source, also for what is published later: a replay that has read all there is
waits until more is on stable storage, and reads on. So there is no seam between replay and live
where a message could be lost or come twice, and nothing reaches the client that a crash could take
back. The one exception is the option `live`, for those who ask for it.

    Reading   goes through the log for one subscription, or for several of a connection that were
              resumed together, at the client's pace: while it has unread data nothing is read
    Tail      reads once for all subscriptions that have caught up; whoever falls behind goes back
              to a reading of its own
    Live      what has caught up and wants messages before they are safe gets them from their topic

    Replay    one subscription: which of these it is in, paused, or still looking for its bookmark

A paginated replay has records of its own, which its page is cut from (`paged`). Else, what is read
goes through topics of its own (`logged_topics`), which match, frame and conflate as
the topics of publishers do.

Source: AMPS User Guide, Replaying Messages with Bookmark Subscription.
"""
