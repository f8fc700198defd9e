"""Fakes and contexts for tests: for this project's tests, and for those of tool authors.

Alongside the user interfaces; imports floors 0 to 5 except ``backends.ray``.
"""
