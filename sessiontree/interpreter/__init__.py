"""What Python does first: where modules may come from, in programs and in the processes of a runtime.

Room: floor 0; stands on what every interpreter has loaded when it starts, for until it works nothing else may
be imported.
Not here: how processes of the runtime are started and confined (sandbox), the copy of a program (actors).
"""
