"""The State of the World: stores, indexes, queries and expires the last value of every key.

Nothing here depends on sessions, sockets or clocks. All calls come from the engine's thread; the
caller passes the time as nanoseconds since 1970 (`records.to_nanoseconds`). Used by other parts:

    topic_records.SowTopicRecords(spec, message_type, store, functions, generator)
        .prepare_record(body, now, sequence, bookmark=, topic=, key=, delta=, ...) -> Record
        .apply(record) -> RecordChange         after the journal, from replication, a replay
        .publish(body, now, sequence, ...) -> RecordChange                      both at once
        .find_by_keys(keys, topics), .find_by_body(body, topic) -> list[Record]
        .remove(record, sequence, now) -> RecordChange | None
        .find_unchanged(states, topic) -> list[Record]
        .next_expiry() -> int | None, .expire(now, sequence) -> RecordChange | None
        .query(spec, now) -> Query, .compact() -> Iterator[None]
    record_table.RecordTable(store, message_type, options)
        the same records without a `<Topic>`: the base of views and conflated topics
        .put(record) -> RecordChange, .remove(identity, sequence, now) -> RecordChange | None
        .get(identity), .build_indexes() -> Iterator[None]
    query.query.Query(table, QuerySpec(filter, keys, order_by, top_n, skip_n, topics, as_of), now)
        an iterator of lists of records, each step a short slice; .matches, .topic_matches;
        .close()
    records.Record, records.RecordChange(key, topic, previous, record)
    memory_store.MemoryStore()                      transient topics, views, conflated topics
    file_store.open_store(path, committer, on_synchronised, topic=, pattern=, slab_size=, ...)
        -> FileStore, StoreRecovery(records, lost_bytes, damage, set_aside)
        .commit(callback)   calls back when all changes so far are stable, or with the error
        .last_sequence      where the replay of a journal continues
        .statistics, .close()
    group_commit.SowCommitter(post, synchronise)     one thread for all files of an instance
    keys.generators.create_key_generator(library, topic, message_type, options) -> KeySource

Errors for the publisher: `KeyRefusedError`, `RecordStoreError`, and the message types' `BodyError`.
Errors of a start: `FileInUseError`, `OtherVersionError`, `KeyModuleError`, `DamagedChainFileError`,
OSError.

From the bottom up: `slab/` (the file: format, maps, log, entries), `store` (the interface) with
`memory_store` and `file_store`; `indexes/`, `history`, `expiry_queue`, `snapshot`; `record_table`;
`query/` (candidates, filters, order); `keys/`, `enrichment`; `topic_records`.
"""
