"""The admin interface: the state of the instance, over HTTP.

    a socket -> http/: Request -> site.py: routes the path -> tree.py, documents/: Response

It runs on a thread of its own, with an event loop of its own. The figures come from the thread of
statistics as immutable snapshots; questions to the engine run on the engine's thread. So neither a
slow reader nor a large question holds up a message.

Source: AMPS User Guide, Monitoring AMPS; AMPS Monitoring Guide.
"""
