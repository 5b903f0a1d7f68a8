"""One module per framework or peer. It is imported only in that subject's own environment."""
