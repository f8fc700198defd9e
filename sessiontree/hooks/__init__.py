"""The included hooks: they cut long results, remove secrets from everything kept, and add metadata.

Floor 1. Imports contracts only; no files, no network.
Not here: running hooks (``dispatch``), or what a hook is (``contracts``).
"""
