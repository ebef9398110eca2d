"""The console: the page that an operator opens, and what it asks for that the tree does not have.

What the browser runs is in `static/`, as it is read there: no step builds it. All that a page shows
of the instance comes from `/amps`, as for everybody else; what is below `/console` is for the page
alone, and may change with it. Each path is entitled as a resource of the type `admin`.
"""
