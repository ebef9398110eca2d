"""The replication state of an instance, and its links with other instances.

`server/replication/core` decides; this package adds a log, a clock and links. `ReplicationState`
lives as long as the instance; links come and go. Sockets are in `server/replication/transport`.
"""
