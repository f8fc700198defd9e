"""The local backend: the whole runtime in one asyncio process.

Room: floor 5; the same ports as every backend, delays, duplicates and losses on purpose included.
Not here: anything a second backend would need too (runtime).
"""
