"""The built-in tools, one file each; they stand on ``sessiontree.contracts`` alone."""
