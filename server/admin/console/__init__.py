"""The console: the page that operators open, and its requests that the `/amps` tree cannot answer.

The code for the browser is in `static/` in the form in which it runs, without a build step. A page
gets all data about the instance from `/amps`, as any other client does; the paths below `/console`
are for the page only, and may change with it. Entitlement treats each path as a resource of the
type `admin`.
"""
