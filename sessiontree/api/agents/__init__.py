"""Agents: files and settings that an owner writes for them, their models and approval modes."""
