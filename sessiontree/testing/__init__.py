"""Fakes and contexts for tests: for this project's tests, and for those of tool authors.

Floor 7. It imports floors 0 to 5 except ``backends.ray``.
Not here: what a program without tests needs (``api``).
"""
