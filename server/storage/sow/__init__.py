"""The State of the World: stores, indexes, queries and expires the last value of every key.

Nothing here depends on sessions, sockets or clocks. All calls come from the engine's thread; the
caller passes the time as nanoseconds since 1970 (`records.to_nanoseconds`). Used by other parts:

    topic.SowTopic(spec, message_type, store, functions, generator)
        .draft(body, now, sequence, bookmark=, topic=, key=, delta=, ...) -> Record
        .apply(record) -> Change               after the journal, from replication, from a replay
        .publish(body, now, sequence, ...) -> Change                            both at once
        .find_keys(keys, topics), .find_body(body, topic) -> list[Record]
        .remove(record, sequence, now) -> Change | None
        .in_states(states, topic) -> list[Record]
        .next_expiry() -> int | None, .expire(now, sequence) -> Change | None
        .query(spec, now) -> Query, .compact() -> Iterator[None]
    table.RecordTable(store, message_type, options)
        the same records without a `<Topic>`: the base of views and conflated topics
        .put(record) -> Change, .remove(identity, sequence, now) -> Change | None
        .get(identity), .build_indexes() -> Iterator[None]
    query.Query(table, query.QuerySpec(filter, keys, order_by, top_n, skip_n, topics, as_of), now)
        an iterator of lists of records, each step a short slice; .matches, .topic_matches;
        .close()
    records.Record, records.Change(key, topic, previous, record)
    memory_store.MemoryStore()                      transient topics, views, conflated topics
    file_store.open_store(path, committer, tell, topic=, pattern=, slab_size=, initial_slabs=)
        -> FileStore, Recovery(records, lost_bytes, damage, set_aside)
        .commit(then)       calls back when all changes so far are stable, or with the error
        .last_sequence      where the replay of a journal continues
        .statistics, .close()
    commit.GroupCommit(post, synchronise)           one thread for all files of an instance
    key_modules.create_key_generator(library, topic, message_type, options) -> keys.KeySource

Errors for the publisher: `keys.KeyRefusedError`, `store.StoreError`, and the message types'
`BodyError`. Errors of a start: `base.data_files.FileInUseError`,
`slab_file.OtherVersionError`, `key_errors.KeyModuleError`, `chain_file.DamagedChainFileError`,
OSError.

From the bottom up: `slab_format` (bytes), `slab_file` (maps), `slab_reading` (many entries at
once), `slab_scan` and `slab_log` (reading and writing the log), `store` (the interface) with
`memory_store` and `file_store`; `hash_index`, `memo_index`, `history`, `expiry`, `snapshot`;
`table`; `candidates`, `record_test`, `ordering` and `query`; `keys`, `chaining`, `enrichment`;
`topic`.
"""
