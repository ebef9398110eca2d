"""libamps_http_entitlement: authentication and entitlement by a web service.

    a logon  --credentials-->  PermissionService: GET ResourceURI  --document-->  PermissionStore
    a user's operation  --PermissionStore: the rules of the document-->  allowed or not

`service.py` sends requests: on the thread of `AsyncWorker`, not the engine's, and once for all
concurrent logons with the same credentials. Results are kept in a store (`permission_store.py`) as
long as the user has connections; transports with the same `PermissionStore` share it. `modules.py`
builds the engine's modules on both: an authentication module and an entitlement module, or with
`EntitlementOnly` the latter alone, which sends requests without credentials. `challenges.py`
formats credentials as the service requires, `settings.py` reads the options and `option_check.py`
validates them.

Source: AMPS User Guide, RESTful Authentication and Entitlements.
"""
