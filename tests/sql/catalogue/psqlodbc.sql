-- What psqlodbc sends.
--
-- `--> ` begins a row of the answer, `--$ ` the values of parameters in JSON.

-- SQLTables
select relname, nspname, relkind from pg_catalog.pg_class c, pg_catalog.pg_namespace n where relkind in ('r', 'v', 'm', 'f', 'p') and nspname not in ('pg_catalog', 'information_schema', 'pg_toast', 'pg_temp_1') and n.oid = relnamespace order by nspname, relname;
--> ["orders", "amps", "r"]
--> ["positions", "amps", "v"]
--> ["/Odd.Topic", "json", "m"]

-- SQLColumns
select n.nspname, c.relname, a.attname, a.atttypid, t.typname, a.attnum, a.attlen, a.atttypmod, a.attnotnull, c.relhasrules, c.relkind, c.oid, pg_get_expr(d.adbin, d.adrelid), case t.typtype when 'd' then t.typbasetype else 0 end, t.typtypmod, 0, attidentity, c.relhassubclass from (((pg_catalog.pg_class c inner join pg_catalog.pg_namespace n on n.oid = c.relnamespace and c.relname = E'orders' and n.nspname = E'amps') inner join pg_catalog.pg_attribute a on (not a.attisdropped) and a.attnum > 0 and a.attrelid = c.oid) inner join pg_catalog.pg_type t on t.oid = a.atttypid) left outer join pg_attrdef d on a.atthasdef and d.adrelid = a.attrelid and d.adnum = a.attnum order by n.nspname, c.relname, attnum;
--> ["amps", "orders", "_key", 25, "text", 1, -1, -1, true, false, "r", ":orders", null, 0, -1, 0, "", false]
--> ["amps", "orders", "id", 20, "int8", 2, 8, -1, false, false, "r", ":orders", null, 0, -1, 0, "", false]
--> ["amps", "orders", "symbol", 25, "text", 3, -1, -1, false, false, "r", ":orders", null, 0, -1, 0, "", false]
--> ["amps", "orders", "qty", 20, "int8", 4, 8, -1, false, false, "r", ":orders", null, 0, -1, 0, "", false]
--> ["amps", "orders", "price", 701, "float8", 5, 8, -1, false, false, "r", ":orders", null, 0, -1, 0, "", false]
--> ["amps", "orders", "open", 16, "bool", 6, 1, -1, false, false, "r", ":orders", null, 0, -1, 0, "", false]
--> ["amps", "orders", "client.name", 25, "text", 7, -1, -1, false, false, "r", ":orders", null, 0, -1, 0, "", false]
--> ["amps", "orders", "tags", 3802, "jsonb", 8, -1, -1, false, false, "r", ":orders", null, 0, -1, 0, "", false]
--> ["amps", "orders", "_timestamp", 1184, "timestamptz", 9, 8, -1, false, false, "r", ":orders", null, 0, -1, 0, "", false]

-- SQLPrimaryKeys
select ta.attname, ia.attnum, ic.relname, n.nspname, tc.relname from pg_catalog.pg_attribute ta, pg_catalog.pg_attribute ia, pg_catalog.pg_class tc, pg_catalog.pg_index i, pg_catalog.pg_namespace n, pg_catalog.pg_class ic where tc.relname = E'orders' AND n.nspname = E'amps' AND tc.oid = i.indrelid AND n.oid = tc.relnamespace AND i.indisprimary = 't' AND ia.attrelid = i.indexrelid AND ta.attrelid = i.indrelid AND ta.attnum = i.indkey[ia.attnum-1] AND (NOT ta.attisdropped) AND (NOT ia.attisdropped) AND ic.oid = i.indexrelid order by ia.attnum;
--> ["_key", 1, "orders_pkey", "amps", "orders"]
