"""The durable log of all trees in one state directory: facts, blobs and exports.

Floor 3, SQLite and files, one writing process. Everything that was acknowledged survives a kill. Not here:
what a fact means (``contracts``), or how state follows from facts (``session``, ``tree``).
"""
