"""The AMPS configuration language, from the text of a file to the description of an instance."""
