-- What psycopg sends.
--
-- `--> ` begins a row of the answer, `--$ ` the values of parameters in JSON.

-- TypeInfo.fetch
SELECT typname AS name, oid, typarray AS array_oid, oid::regtype::text AS regtype, typdelim AS delimiter FROM pg_type t WHERE t.oid = to_regtype('int4') ORDER BY t.oid;
--> ["int4", 23, 1007, "integer", ","]
