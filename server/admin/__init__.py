"""The admin interface: what there is to know of the instance, over HTTP.

    a socket -> http/: Request -> site.py: which path means what -> tree.py, documents/: Response

It runs on a thread of its own, with an event loop of its own. What it shows comes from the thread
of statistics as immutable snapshots; what has to be asked of the engine is asked on the engine's
thread. So neither a slow reader nor a large question holds up a message.

Source: AMPS User Guide, Monitoring AMPS; AMPS Monitoring Guide.
"""
