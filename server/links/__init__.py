"""Replication, served: what an instance has of it, and its links with other instances.

`server/replication` decides; here it gets a log, a clock and links. `Replication` is what there is
as long as the instance lives; a link comes and goes. Sockets are in `server/transports`.
"""
