"""The data model: frozen values and pure functions, without input or output."""
