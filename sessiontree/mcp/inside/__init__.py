"""What runs in a connection's process: the protocol's library, the server's process, and stored tokens."""
