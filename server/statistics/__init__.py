"""Statistics: figures of the instance and its host, as of now and over time.

    engine's thread                      | thread of statistics
    counters, where things happen        |
      -> StatisticsSource: one resource  |
      -> StatisticsCollector: a sample   -> StatisticsThread: completed with host and rates
                                         |   -> StatisticsDatabase: X_STATIC and X_DYNAMIC
                                         |   -> callbacks of watchers

Each part of the server keeps its own numbers as plain attributes, where they arise. Once per
Interval the collector reads them, in time slices between other work; the result is immutable, and
belongs to the thread of statistics from then on. Rates, the database, and all output for people
and programs are created there or beyond it, so that neither a large question nor a slow reader
holds up a message.

All figures are described once, in `resources`: the tree of the admin interface, the tables of the
database, the types of values and the metrics all follow from it.

Source: AMPS Monitoring Guide.
"""
