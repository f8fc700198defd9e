"""JSON Schemas of tool parameters and session results: deriving, checking, coercing, and provider dialects.

Floor 1, pure. Imports contracts, pydantic and jsonschema-rs.
Not here: counting failed attempts (``session``), and calling providers (``models``).
"""
