"""The runtime: keeps the machines turning: supervises trees, hosts sessions, holds the one timer heap.

Room: floor 4; asyncio over ports; carries out the instructions the machines give.
Not here: rules (floor 2), processes and threads of a particular backend (floor 5).
"""
