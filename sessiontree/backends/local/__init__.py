"""The local backend: the whole runtime in one asyncio process.

Floor 5. It implements the same ports as the Ray backend, and can delay, repeat and lose frames on purpose.
Not here: code that both backends need (``runtime``).
"""
