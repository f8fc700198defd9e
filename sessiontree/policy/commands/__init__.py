"""What a command line would run, and whether it is known to change nothing.

Floor 1, pure. A command is judged by a small subset of the shell's language and by grammars of arguments. A
command outside them cannot be judged, so a person is asked.
Not here: what confines a command (``sandbox``; no confinement depends on a verdict), or who is asked
(``tree``).
"""
