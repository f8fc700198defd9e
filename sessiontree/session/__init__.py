"""The session machine: the loop of one session as a pure function of its inputs.

Floor 2, pure. ``decide`` holds every rule of turns, calls, retries and prompts; ``evolve`` holds no rule.
Not here: clocks, randomness, files or waiting. A stimulus brings its time and its new ids.
"""
