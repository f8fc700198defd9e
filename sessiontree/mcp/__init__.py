"""MCP servers: their pinned tools, and one confined or plain process for each connection.

Floor 3, over ``sandbox``. A connection's process alone loads the protocol's library; the supervisor asks it
over a socket, restarts it after a loss, and ends it. Tools are made from pins, without a connection.
Not here: who may call a tool (``policy``), who is asked for input (``tree``), or an MCP server (``doors``).
"""
