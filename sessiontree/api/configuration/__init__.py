"""The owner's configuration: its file, variables, plugins, MCP servers, and what a workspace offers."""
