"""System topics: /AMPS/ClientStatus, /AMPS/Audit and /AMPS/SOWStats."""
