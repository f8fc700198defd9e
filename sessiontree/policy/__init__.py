"""Which tools a session may hold: the table of all tools, the owner's lists, and why a tool is gone.

Room: floor 1, pure; stands on contracts and pydantic.
Not here: whether one call needs approval (the tree machine), and refusing calls (dispatch).
"""
