"""The two backends: ``ray`` runs each live session in an actor, ``local`` runs everything in this process.

Floor 5. Only ``backends.ray`` imports Ray.
Not here: decisions (``session`` and ``tree``), or what both backends need (``runtime``).
"""
