"""Recorded replies: a model that asks a provider once and a file ever after."""
