"""/metrics: the last sample, in the format of Prometheus and compatible collectors.

    table       maps values of resources to metrics
    families    a snapshot as families of metrics, by that table
    summaries   sums over entries: clients by transport
    durations   distributions as histograms
    process     the standard metrics of a process
    exposition  families as text
    pages       requests for it

The number of series is bounded: clients and subscriptions are summed up, and topics, queues and
the like are listed one by one up to `families.MAX_ENTRIES`. A collector that needs each of them
requests one group at a time, at /metrics/detailed.

Source: OpenMetrics 1.0; Prometheus, Exposition Formats, Metric and Label Naming.
"""
