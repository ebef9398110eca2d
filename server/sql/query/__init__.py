"""SQL text to results: parse, push down, scan, execute with DuckDB.

    text -> statement_parser.parse     statements: classified, with the tables that they read
         -> pushdown.plan_scans        one ScanRequest per table: columns, filter, limit
         -> TableSource.scan           one consistent snapshot of all tables, in Arrow
         -> plan_execution             DuckDB over these tables: record batches

`tables` is the data model; `pg_catalog` has the catalogue that tools read; `explain` answers
EXPLAIN.
"""
