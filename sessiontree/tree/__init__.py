"""The tree machine: who exists, who may what, who is asked next, and what is spent.

Room: floor 2; ``decide`` holds every rule of spawning, approvals, budgets and cancelling, ``evolve`` none.
Not here: clocks, chance, files, waiting: stimuli bring their time and their fresh ids.
"""
