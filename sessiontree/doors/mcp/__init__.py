"""Trees as an MCP server: tools that begin and steer them, and tasks that go on over restarts."""
