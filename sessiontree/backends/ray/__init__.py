"""The runtime on Ray: actors that carry the runtime's frames between processes, and Ray's own start and end.

Floor 5. Only this package imports Ray. Not here: any decision about sessions or trees.
"""
