"""How the description of an instance becomes an instance that runs."""
