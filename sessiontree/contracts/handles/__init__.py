"""Handles: the protocols behind which a tool reaches files, commands, memory, people and machines."""
