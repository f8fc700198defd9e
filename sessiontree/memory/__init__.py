"""What sessions remember: the store of records, its search, and the embedders that turn text into vectors.

Floor 3. Only this package imports LanceDB, PyArrow and numpy; ``import sessiontree.memory`` loads none of
them, ``import sessiontree.memory.store`` does. One process writes a store; acknowledged records survive a
kill. Not here: who may ask (``runtime``), in which process it runs (``backends``), or how a model asks
(tools).
"""
