"""Stored trees: their states, replays, forecasts and forks. Everything here only reads."""
