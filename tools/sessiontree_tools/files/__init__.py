"""Tools for files: read, change, patch and search them."""
