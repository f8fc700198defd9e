"""Dispatch: one tool call from its name to its result: prepare, execute, finalize.

Room: floor 3; normalises and validates arguments, runs hooks, keeps time, cuts what is too long.
Not here: deciding who may hold a tool (the machines of floor 2), tools themselves.
"""
