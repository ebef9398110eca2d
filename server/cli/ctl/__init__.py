"""The commands of `amps-ctl`: requests to the admin interface of a running instance."""
