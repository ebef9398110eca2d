"""/metrics: the last sample, in the form that Prometheus and its kin read.

    table       which values of which resources become which metrics
    families    a snapshot as families of metrics, by that table
    summaries   what is summed up: clients by transport
    durations   distributions as histograms
    process     what every process is expected to tell of itself
    exposition  families as text
    pages       requests for it

The number of series is bounded: clients and subscriptions are summed up, and of topics, queues and
the like so many are told apart as `families.MOST_ENTRIES` says. Who needs to see each asks for one
group at a time, at /metrics/detailed.

Source: OpenMetrics 1.0; Prometheus, Exposition Formats, Metric and Label Naming.
"""
