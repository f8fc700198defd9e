"""The control socket: how other processes of the same person reach a live supervisor, through a socket file.

Room: between runtime and backends; the socket file, who may come in, the protocol, its server and its client.
Not here: what an answer means (the supervisor's API), or showing anything to anybody.
"""
