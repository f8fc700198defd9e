"""The supervisor: one controller for each open tree, one writer of facts, and what follows a commit."""
