-- What DuckDB's extension postgres sends.
--
-- `--> ` begins a row of the answer, `--$ ` the values of parameters in JSON.

-- the version
SELECT version(), (SELECT COUNT(*) FROM pg_settings WHERE name LIKE 'rds%');
--> ["PostgreSQL 16.0 (Amperage)", 0]

-- secrets
SELECT to_regclass('duckdb_secrets');
--> [null]

-- schemas
SELECT oid, nspname FROM pg_namespace ORDER BY oid;
--> [11, "pg_catalog"]
--> [13000, "information_schema"]
--> [716045453, "json"]
--> [1162418097, "amps"]

-- tables, columns and constraints
SELECT pg_namespace.oid AS namespace_id, relname, relpages, attname, pg_type.typname type_name, atttypmod type_modifier, pg_attribute.attndims ndim, attnum, pg_attribute.attnotnull AS notnull, NULL constraint_id, NULL constraint_type, NULL constraint_key, type_ns.nspname AS type_schema, col_desc.description AS column_comment, tbl_desc.description AS table_comment FROM pg_class JOIN pg_namespace ON relnamespace = pg_namespace.oid JOIN pg_attribute ON pg_class.oid=pg_attribute.attrelid JOIN pg_type ON atttypid=pg_type.oid JOIN pg_namespace type_ns ON pg_type.typnamespace = type_ns.oid LEFT JOIN pg_description col_desc ON col_desc.objoid=pg_class.oid AND col_desc.objsubid=pg_attribute.attnum LEFT JOIN pg_description tbl_desc ON tbl_desc.objoid=pg_class.oid AND tbl_desc.objsubid=0 WHERE attnum > 0 AND relkind IN ('r', 'v', 'm', 'f', 'p') AND pg_namespace.nspname IN ('amps')AND relname='orders' UNION ALL SELECT pg_namespace.oid AS namespace_id, relname, NULL relpages, NULL attname, NULL type_name, NULL type_modifier, NULL ndim, NULL attnum, NULL AS notnull, pg_constraint.oid AS constraint_id, contype AS constraint_type, conkey AS constraint_key, NULL AS type_schema, NULL AS column_comment, NULL AS table_comment FROM pg_class JOIN pg_namespace ON relnamespace = pg_namespace.oid JOIN pg_constraint ON (pg_class.oid=pg_constraint.conrelid) WHERE relkind IN ('r', 'v', 'm', 'f', 'p') AND contype IN ('p', 'u') AND pg_namespace.nspname IN ('amps')AND relname='orders' ORDER BY namespace_id, relname, attnum, constraint_id;
--> [1162418097, "orders", 0, "_key", "text", -1, 0, 1, true, null, null, null, "pg_catalog", "the SOW key", "topic"]
--> [1162418097, "orders", 0, "id", "int8", -1, 0, 2, false, null, null, null, "pg_catalog", null, "topic"]
--> [1162418097, "orders", 0, "symbol", "text", -1, 0, 3, false, null, null, null, "pg_catalog", "what is traded", "topic"]
--> [1162418097, "orders", 0, "qty", "int8", -1, 0, 4, false, null, null, null, "pg_catalog", null, "topic"]
--> [1162418097, "orders", 0, "price", "float8", -1, 0, 5, false, null, null, null, "pg_catalog", null, "topic"]
--> [1162418097, "orders", 0, "open", "bool", -1, 0, 6, false, null, null, null, "pg_catalog", null, "topic"]
--> [1162418097, "orders", 0, "client.name", "text", -1, 0, 7, false, null, null, null, "pg_catalog", null, "topic"]
--> [1162418097, "orders", 0, "tags", "jsonb", -1, 0, 8, false, null, null, null, "pg_catalog", null, "topic"]
--> [1162418097, "orders", 0, "_timestamp", "timestamptz", -1, 0, 9, false, null, null, null, "pg_catalog", null, "topic"]
--> [1162418097, "orders", null, null, null, null, null, null, null, 1311573583, "p", [1], null, null, null]

-- enumerations
SELECT n.oid, enumtypid, typname, enumlabel FROM pg_enum e JOIN pg_type t ON e.enumtypid = t.oid JOIN pg_namespace AS n ON (typnamespace=n.oid) ORDER BY n.oid, enumtypid, enumsortorder;
--> no rows

-- composite types
SELECT n.oid, t.typrelid AS id, t.typname as type, pg_attribute.attname, sub_type.typname, sub_type_ns.nspname AS sub_type_schema FROM pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace JOIN pg_class ON pg_class.oid = t.typrelid JOIN pg_attribute ON attrelid=t.typrelid JOIN pg_type sub_type ON (pg_attribute.atttypid=sub_type.oid) JOIN pg_catalog.pg_namespace sub_type_ns ON sub_type_ns.oid = sub_type.typnamespace WHERE pg_class.relkind IN ('c', 'r', 'v', 'm', 'f', 'p') AND t.typtype='c' AND pg_attribute.attnum > 0 AND NOT pg_attribute.attisdropped ORDER BY n.oid, t.oid, attrelid, attnum;
--> no rows

-- indexes
SELECT pg_namespace.oid, tablename, indexname FROM pg_indexes JOIN pg_namespace ON (schemaname=nspname) ORDER BY pg_namespace.oid;
--> [716045453, "/Odd.Topic", "/Odd.Topic_pkey"]
--> [1162418097, "orders", "orders_pkey"]
