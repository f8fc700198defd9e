"""The session machine: one session's loop as a pure function of what reaches it.

Room: floor 2; ``decide`` holds every rule of turns, calls, retries and prompts, ``evolve`` holds none.
Not here: clocks, chance, files, waiting: stimuli bring their time and their fresh ids.
"""
