"""Hooks to give to a tree: cut long results, take secrets out of all that is kept, add to results' details.

Room: floor 1, over the contracts alone; no files, no network.
Not here: running hooks (``dispatch``), what a hook is (``contracts``).
"""
