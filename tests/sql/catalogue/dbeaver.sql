-- What dbeaver sends.
--
-- `--> ` begins a row of the answer, `--$ ` the values of parameters in JSON.

-- databases
SELECT db.oid,db.* FROM pg_catalog.pg_database db WHERE datallowconn AND NOT datistemplate;
--> [5, 5, "trading", 10, 6, "c", false, true, -1, 0, 0, 1663, "C", "C.UTF-8", null, null, null, null]

-- schemas
SELECT n.oid,n.*,d.description FROM pg_catalog.pg_namespace n LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid=n.oid AND d.objsubid=0 AND d.classoid='pg_namespace'::regclass ORDER BY nspname;
--> [1162418097, 1162418097, "amps", 10, null, null]
--> [13000, 13000, "information_schema", 10, null, null]
--> [716045453, 716045453, "json", 10, null, null]
--> [11, 11, "pg_catalog", 10, null, null]

-- tables of a schema
SELECT c.oid,c.*,d.description,pg_catalog.pg_get_expr(c.relpartbound, c.oid) as partition_expr,  pg_catalog.pg_get_partkeydef(c.oid) as partition_key FROM pg_catalog.pg_class c LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid=c.oid AND d.objsubid=0 AND d.classoid='pg_class'::regclass WHERE c.relnamespace=(select oid from pg_namespace where nspname = 'amps') AND c.relkind not in ('i','I','c');
--> [":orders", ":orders", "orders", 1162418097, 0, 0, 10, 2, 0, 0, 0, -1.0, 0, 0, true, false, "p", "r", 9, 0, false, false, false, false, false, true, "d", false, 0, 0, 0, null, null, null, "topic", null, null]
--> [1585425726, 1585425726, "positions", 1162418097, 0, 0, 10, 0, 0, 0, 0, -1.0, 0, 0, false, false, "p", "v", 2, 0, false, false, false, false, false, true, "d", false, 0, 0, 0, null, null, null, "view", null, null]

-- columns of a table
SELECT c.relname,a.*,pg_catalog.pg_get_expr(ad.adbin, ad.adrelid, true) as def_value,dsc.description,dep.objid FROM pg_catalog.pg_attribute a INNER JOIN pg_catalog.pg_class c ON (a.attrelid=c.oid) LEFT OUTER JOIN pg_catalog.pg_attrdef ad ON (a.attrelid=ad.adrelid AND a.attnum = ad.adnum) LEFT OUTER JOIN pg_catalog.pg_description dsc ON (c.oid=dsc.objoid AND a.attnum = dsc.objsubid) LEFT OUTER JOIN pg_depend dep on dep.refobjid = a.attrelid AND dep.deptype = 'i' and dep.refobjsubid = a.attnum and dep.classid = dep.refclassid WHERE NOT a.attisdropped AND c.relname = 'orders' ORDER BY a.attnum;
--> ["orders", ":orders", "_key", 25, -1, 1, -1, -1, 0, false, "i", "p", "", true, false, false, "", "", false, true, 0, -1, 100, null, null, null, null, null, "the SOW key", null]
--> ["orders", ":orders", "id", 20, 8, 2, -1, -1, 0, false, "i", "p", "", false, false, false, "", "", false, true, 0, -1, 0, null, null, null, null, null, null, null]
--> ["orders", ":orders", "symbol", 25, -1, 3, -1, -1, 0, false, "i", "p", "", false, false, false, "", "", false, true, 0, -1, 100, null, null, null, null, null, "what is traded", null]
--> ["orders", ":orders", "qty", 20, 8, 4, -1, -1, 0, false, "i", "p", "", false, false, false, "", "", false, true, 0, -1, 0, null, null, null, null, null, null, null]
--> ["orders", ":orders", "price", 701, 8, 5, -1, -1, 0, false, "i", "p", "", false, false, false, "", "", false, true, 0, -1, 0, null, null, null, null, null, null, null]
--> ["orders", ":orders", "open", 16, 1, 6, -1, -1, 0, false, "i", "p", "", false, false, false, "", "", false, true, 0, -1, 0, null, null, null, null, null, null, null]
--> ["orders", ":orders", "client.name", 25, -1, 7, -1, -1, 0, false, "i", "p", "", false, false, false, "", "", false, true, 0, -1, 100, null, null, null, null, null, null, null]
--> ["orders", ":orders", "tags", 3802, -1, 8, -1, -1, 0, false, "i", "p", "", false, false, false, "", "", false, true, 0, -1, 0, null, null, null, null, null, null, null]
--> ["orders", ":orders", "_timestamp", 1184, 8, 9, -1, -1, 0, false, "i", "p", "", false, false, false, "", "", false, true, 0, -1, 0, null, null, null, null, null, null, null]

-- constraints of a table
SELECT c.oid,c.*,t.relname as tabrelname,rt.relnamespace as refnamespace,d.description, case when c.contype='c' then "substring"(pg_get_constraintdef(c.oid), 7) else null end consrc_copy FROM pg_catalog.pg_constraint c INNER JOIN pg_catalog.pg_class t ON t.oid=c.conrelid LEFT OUTER JOIN pg_catalog.pg_class rt ON rt.oid=c.confrelid LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid=c.oid AND d.objsubid=0 AND d.classoid='pg_constraint'::regclass WHERE c.conrelid='orders'::regclass ORDER BY c.oid;
--> [1311573583, 1311573583, "orders_pkey", 1162418097, "p", false, false, true, ":orders", 0, 1365735613, 0, 0, " ", " ", " ", true, 0, true, [1], null, null, null, null, null, null, null, "orders", null, null, null]

-- a setting
select * from pg_catalog.pg_settings where name='standard_conforming_strings';
--> ["standard_conforming_strings", "on", null, "Client", "", null, "user", "string", "default", null, null, null, "on", "on", null, null, false]
