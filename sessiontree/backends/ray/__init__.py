"""The runtime on Ray: adapters that carry its frames between processes.

Room: the only one that imports Ray. Not here: any decision about sessions or trees.
"""
