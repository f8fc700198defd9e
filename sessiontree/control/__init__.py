"""The control socket: how other processes of the same user reach a live supervisor.

Floor 4, over ``runtime``. It holds the socket file, the check of peers, the protocol, the server and the
client.
Not here: the meaning of an answer (the supervisor's API), or its display (``cli``).
"""
