"""The format of journal files: layout, records, names, and files beside them."""
