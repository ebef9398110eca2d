"""Transport filters: what may change or stop a command before the instance carries it out."""
