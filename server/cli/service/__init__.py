"""The server as a service of the machine: the implementation of `amps-service`."""
