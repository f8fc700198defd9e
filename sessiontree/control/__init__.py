"""The control socket: how other processes of the same person reach a live supervisor, through a socket file.

Room: between kernel and backends; the socket file, who may come in, the protocol, its server and its client.
Not here: what an answer means (the kernel's owner), or showing anything to anybody.
"""
