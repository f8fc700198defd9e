"""The controller of one tree: it decides, commits what was decided, and then carries it out."""
