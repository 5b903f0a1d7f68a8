"""The pages of the inbox, rendered on the server.

`listing` is the list, `alike` its rows of similar calls, `request` the page of one request; `forms` builds its fields,
`edits` reads them, and `actions` executes its buttons. `rendering` has what all pages need, such as `list_row`. Other
pages have modules of their names.
"""
