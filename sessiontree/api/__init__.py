"""The classes that programs use: trees, session handles, runtimes, the inbox, options and paths.

Floor 6. Not here: rules (``session`` and ``tree``), or the same classes without ``await`` (``sync``).
"""
