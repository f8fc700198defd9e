"""The survey: a tree of sessions that reads a directory, writes a report, and answers questions about it.

It is a program that uses this package: it imports nothing but public names, and the extra ``survey``.
"""
