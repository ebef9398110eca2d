-- What several drivers and tools send.
--
-- `--> ` begins a row of the answer, `--$ ` the values of parameters in JSON.

-- set_config
SELECT pg_catalog.set_config('search_path', '', false);
--> [""]

-- activity
select * from pg_stat_activity where pid = pg_backend_pid();
--> [5, "trading", 42, null, 10, "ann", "", null, null, null, null, null, null, null, null, null, "active", null, null, null, null, "client backend"]

-- functions
SELECT version(), pg_is_in_recovery(), inet_server_addr(), pg_postmaster_start_time() is null, current_user::text, txid_current();
--> ["PostgreSQL 16.0 (Amperage)", false, null, false, "ann", 1]

-- information_schema
select table_schema, table_name, table_type from information_schema.tables where table_schema not in ('pg_catalog','information_schema') order by 1,2;
--> ["amps", "orders", "BASE TABLE"]
--> ["amps", "positions", "VIEW"]
--> ["json", "/Odd.Topic", "VIEW"]

-- an unknown relation is empty
select count(*) from pg_replication_slots s where s.active;
--> [0]
