"""The durable log of trees in one state directory: facts, snapshots, blobs and exports.

Room: floor 3; SQLite and files, one writing process. What was acknowledged survives a kill.
Not here: what a fact means (contracts/facts.py), how state follows from facts (session/, tree/).
"""
