"""Doors: what other programs reach a tree by, and what each of their tokens may do there.

Floor 6, over ``sync``. A token stands for a principal, which acts for itself and never for the owner.
Not here: any rule of rights (``policy``, ``dispatch``), or the pages of trees (``serve``).
"""
