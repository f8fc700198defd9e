"""Arguments of a tree: what a program gives becomes the tree's configuration and its live objects."""
