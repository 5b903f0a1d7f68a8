"""The pages of the inbox, rendered on the server."""
