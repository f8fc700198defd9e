"""Which tools a session may hold: the table of all tools, the owner's lists, and why a tool was removed.

Floor 1, pure. Imports contracts and pydantic.
Not here: whether a call needs an approval (``tree``), or refusing calls (``dispatch``).
"""
