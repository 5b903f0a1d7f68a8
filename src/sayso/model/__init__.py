"""The nouns: frozen, pure, no input or output."""
