"""Authentication: sessions, login links, OpenID, a trusted proxy, and the tokens of programs."""
