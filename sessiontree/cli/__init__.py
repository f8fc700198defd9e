"""The command line: every command that a person types.

Floor 7, over ``bench``. It parses arguments, calls the API, and prints text or JSON.
Not here: anything that another program would call (``api``).
"""
