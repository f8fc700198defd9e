"""Dispatch: runs one tool call from its name to its result: prepare, execute, finalize.

Floor 3. It normalises and validates arguments, runs hooks, enforces deadlines, cuts long results and fits
images.
Not here: deciding who may hold a tool (``session``, ``tree``, ``policy``), or the tools themselves.
"""
