"""The AMPS configuration language: document, schema, problems and the typed description of an instance."""
