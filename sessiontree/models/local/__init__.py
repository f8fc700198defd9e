"""A small model on this machine, and the process that serves it."""
