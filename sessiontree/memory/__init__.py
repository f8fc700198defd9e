"""What sessions remember: the store of records, its search, and what turns text into vectors.

Room: floor 3; the only room that imports LanceDB, and numpy with it. Importing the room itself loads neither:
``sessiontree.memory.store`` does. One process writes a store; what was acknowledged survives a kill.
Not here: who may ask (runtime), in which process it runs (backends), or how a model asks (tools).
"""
