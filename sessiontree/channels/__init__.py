"""Channels: where a tree meets a person: the terminal, a callback or a queue.

Floor 3. A channel shows text and approval requests, and returns the answers.
Not here: deciding who is asked (``tree``).
"""
