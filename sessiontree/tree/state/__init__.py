"""The state of a tree, what changes it, and what goes in and out of the machine."""
