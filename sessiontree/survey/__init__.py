"""The survey: a tree of sessions that reads a directory, writes a report, and answers questions about it.

Floor 7. It is a program that uses this package: it imports public names alone, and the extra ``survey``.
Not here: another way to open files than a tool's reader (``workspace``).
"""
