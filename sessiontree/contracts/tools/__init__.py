"""Tools and what surrounds their calls: declarations, the context of a call, agents, plugins and hooks."""
