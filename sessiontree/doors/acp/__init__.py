"""The Agent Client Protocol: an editor talks to trees over standard input and output, as one local principal.

Not here: any rule of rights (``policy``), or how trees are kept open (``doors/conversations``).
"""
