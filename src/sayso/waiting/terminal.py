"""Asking on the terminal where the program runs."""
