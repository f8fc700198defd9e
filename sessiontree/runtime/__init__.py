"""The runtime: supervises trees, hosts sessions, and carries out the instructions of the machines.

Floor 4, asyncio over ports.
Not here: rules (``session`` and ``tree``), or the processes and threads of one backend (``backends``).
"""
