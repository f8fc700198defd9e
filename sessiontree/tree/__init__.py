"""The tree machine: spawning, rights, approvals, budgets, times to live and cancelling.

Floor 2, pure. ``decide`` holds every rule; ``evolve`` holds no rule.
Not here: clocks, randomness, files or waiting. A stimulus brings its time and its new ids.
"""
