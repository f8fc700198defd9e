"""The rules of a tree, one subject a file; ``tree/decide.py`` calls them."""
