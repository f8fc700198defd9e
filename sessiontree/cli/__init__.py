"""The command line: every command a person types.

Room: floor 7; parses arguments, calls the runtime, prints text or JSON.
Not here: anything another program would want to call (runtime).
"""
