-- What ADBC's driver for PostgreSQL sends.
--
-- `--> ` begins a row of the answer, `--$ ` the values of parameters in JSON.

-- types
SELECT oid, typname, typreceive, typbasetype, typrelid, typarray FROM pg_catalog.pg_type WHERE (typreceive != 0 OR typsend != 0) AND typtype != 'r' AND typreceive::TEXT != 'array_recv' AND oid IN (16, 20, 25, 701, 1184, 3802) ORDER BY oid;
--> [16, "bool", "boolrecv", 0, 0, 1000]
--> [20, "int8", "int8recv", 0, 0, 1016]
--> [25, "text", "textrecv", 0, 0, 1009]
--> [701, "float8", "float8recv", 0, 0, 1022]
--> [1184, "timestamptz", "timestamptz_recv", 0, 0, 1185]
--> [3802, "jsonb", "jsonb_recv", 0, 0, 3807]

-- columns of a table
SELECT attname, atttypid FROM pg_catalog.pg_class AS cls INNER JOIN pg_catalog.pg_attribute AS attr ON cls.oid = attr.attrelid INNER JOIN pg_catalog.pg_type AS typ ON attr.atttypid = typ.oid WHERE attr.attnum >= 0 AND cls.oid = $1::regclass::oid ORDER BY attr.attnum;
--$ ["\"amps\" . \"orders\""]
--> ["_key", 25]
--> ["id", 20]
--> ["symbol", 25]
--> ["qty", 20]
--> ["price", 701]
--> ["open", 16]
--> ["client.name", 25]
--> ["tags", 3802]
--> ["_timestamp", 1184]

-- tables of a schema
SELECT c.relname, CASE c.relkind WHEN 'r' THEN 'table' WHEN 'v' THEN 'view' WHEN 'm' THEN 'materialized view' WHEN 't' THEN 'TOAST table' WHEN 'f' THEN 'foreign table' WHEN 'p' THEN 'partitioned table' END AS reltype FROM pg_catalog.pg_class c LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relkind = ANY($2);
--$ ["amps", ["r", "v"]]
--> ["orders", "table"]
--> ["positions", "view"]

-- columns by patterns
SELECT attr.attname, attr.attnum, pg_catalog.col_description(cls.oid, attr.attnum), typ.typname FROM pg_catalog.pg_attribute AS attr INNER JOIN pg_catalog.pg_class AS cls ON attr.attrelid = cls.oid INNER JOIN pg_catalog.pg_namespace AS nsp ON nsp.oid = cls.relnamespace INNER JOIN pg_catalog.pg_type AS typ ON attr.atttypid = typ.oid WHERE attr.attnum > 0 AND NOT attr.attisdropped AND nsp.nspname LIKE $1 AND cls.relname LIKE $2;
--$ ["amps", "positions"]
--> ["total", 2, null, "int8"]
--> ["symbol", 1, null, "text"]

-- schemas
SELECT nspname FROM pg_catalog.pg_namespace WHERE (nspname !~ '^pg_' OR oid = pg_my_temp_schema()) AND nspname <> 'information_schema';
--> ["amps"]
--> ["json"]
