"""Reading the log: bookmarks, lookup, cursors and batches of entries."""
