"""libamps_http_entitlement: a web service says who may log on, and what they may do.

    a logon  --credentials-->  Service: GET ResourceURI  --a document-->  CredentialStore
    what the user does  --CredentialStore: what the document says-->  allowed or not

`service.py` asks: on the desk, never on the engine's thread, and once for all who show the same at
a time. What has been found is kept in a store (`store.py`) as long as the user has connections;
transports with the same `CredentialStore` share it. `modules.py` makes of both what the engine
knows: an authentication module and an entitlement module, or with `EntitlementOnly` the latter
alone, which asks without credentials. `challenges.py` shows these as the service wants them,
`settings.py` reads the options and `checking.py` finds what is wrong with them.

Source: AMPS User Guide, RESTful Authentication and Entitlements.
"""
