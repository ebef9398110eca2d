-- What grafana sends.
--
-- `--> ` begins a row of the answer, `--$ ` the values of parameters in JSON.

-- tables
SELECT CASE WHEN quote_ident(table_schema) IN (SELECT CASE WHEN trim(s[i]) = '"$user"' THEN user ELSE trim(s[i]) END FROM generate_series(array_lower(string_to_array(current_setting('search_path'),','),1), array_upper(string_to_array(current_setting('search_path'),','),1)) as i, string_to_array(current_setting('search_path'),',') s) THEN quote_ident(table_name) ELSE quote_ident(table_schema) || '.' || quote_ident(table_name) END AS "table" FROM information_schema.tables WHERE quote_ident(table_schema) NOT IN ('information_schema', 'pg_catalog', '_timescaledb_cache', '_timescaledb_catalog', '_timescaledb_internal', '_timescaledb_config', 'timescaledb_information', 'timescaledb_experimental') ORDER BY CASE WHEN quote_ident(table_schema) IN (SELECT CASE WHEN trim(s[i]) = '"$user"' THEN user ELSE trim(s[i]) END FROM generate_series(array_lower(string_to_array(current_setting('search_path'),','),1), array_upper(string_to_array(current_setting('search_path'),','),1)) as i, string_to_array(current_setting('search_path'),',') s) THEN 0 ELSE 1 END, 1;
--> ["orders"]
--> ["positions"]
--> ["json.\"/Odd.Topic\""]

-- columns
SELECT quote_ident(column_name) AS "column", data_type AS "type" FROM information_schema.columns WHERE CASE WHEN array_length(parse_ident('orders'),1) = 2 THEN quote_ident(table_schema) = (parse_ident('orders'))[1] AND quote_ident(table_name) = (parse_ident('orders'))[2] ELSE quote_ident(table_name) = 'orders' AND quote_ident(table_schema) IN (SELECT CASE WHEN trim(s[i]) = '"$user"' THEN user ELSE trim(s[i]) END FROM generate_series(array_lower(string_to_array(current_setting('search_path'),','),1), array_upper(string_to_array(current_setting('search_path'),','),1)) as i, string_to_array(current_setting('search_path'),',') s) END;
--> ["_key", "text"]
--> ["id", "bigint"]
--> ["symbol", "text"]
--> ["qty", "bigint"]
--> ["price", "double precision"]
--> ["open", "boolean"]
--> ["\"client.name\"", "text"]
--> ["tags", "jsonb"]
--> ["_timestamp", "timestamp with time zone"]

-- version
SELECT current_setting('server_version_num')::int/100 as version;
--> [1600]

-- timescaledb
SELECT extname FROM pg_extension WHERE extname = 'timescaledb';
--> no rows
