"""/amps/administrator: the administrative operations, each by a request for its path.

    /amps/administrator/clients/12/disconnect
                        group   id operation

A request for an operation executes it, be it GET, as AMPS's users know it, or POST; one for a path
above it lists the entries. All operations run on the engine's thread, in packages of lower layers.

Source: AMPS Monitoring Guide, Administrative Actions; AMPS User Guide, Entitlement, Administrator
Actions.
"""
