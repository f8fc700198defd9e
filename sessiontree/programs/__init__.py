"""Programs that a model writes: the confined process whose interpreters run them.

Floor 3, over ``sandbox``. The process has no file of the user, no socket and no environment. It receives
names and values, and asks for calls by name; everything that it asks for is hostile.
Not here: what a call of a program may do (``dispatch``), what is recorded of it (``session``), or which
session has which program (``runtime``).
"""
