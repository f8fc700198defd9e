"""What a command line would run, and whether that is known to change nothing.

Room: floor 1, pure. A command is judged by a small subset of the shell's language and by grammars of
arguments; whatever lies outside them can't be judged, and whoever asks for a verdict asks a person then.
Not here: what confines a command (the sandbox: no confinement rests on a verdict), and who is asked (the
tree machine).
"""
