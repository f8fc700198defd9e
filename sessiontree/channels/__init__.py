"""Channels: where a tree meets a person: the terminal, a callback, a queue.

Room: floor 3; shows text and approval requests, and brings back what was answered.
Not here: deciding who is asked (the tree machine).
"""
