"""Saved programs: their files, parameters, checks, and the right to run them."""
