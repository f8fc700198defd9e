"""Open trees: the tree, its sessions, its inbox, and the results of several children."""
