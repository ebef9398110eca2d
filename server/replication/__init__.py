"""Replication: the core that decides, links, application of entries, repair and anti-entropy."""
