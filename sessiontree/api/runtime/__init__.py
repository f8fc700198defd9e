"""Runtimes as programs open them: their options, their state directory and their shards."""
