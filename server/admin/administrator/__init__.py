"""/amps/administrator: what can be done to an instance, each thing by a request for its path.

    /amps/administrator/clients/12/disconnect
                        group   id deed

A request for a deed does it, be it GET, as AMPS's users know it, or POST; one for what is above it
shows what there is. Everything is done on the engine's thread, by the rooms below.

Source: AMPS Monitoring Guide, Administrative Actions; AMPS User Guide, Entitlement, Administrator
Actions.
"""
