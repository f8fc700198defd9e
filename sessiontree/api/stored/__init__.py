"""Stored trees: listed, exported, loaded, forked, replayed and erased."""
