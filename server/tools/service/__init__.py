"""The server as a service of the machine: `amps-service`, and what it installs."""
