"""The first steps of a Python process: where modules may come from, in programs and the runtime's processes.

Floor 0. It imports only modules that every interpreter has loaded at its start, because nothing else may be
imported before this package has done its work.
Not here: starting and confining processes (``sandbox``), or the packed copy of a program (``backends``).
"""
