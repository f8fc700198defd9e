"""What a tool's parameters and a session's result look like: JSON Schemas, and values that fit them.

Room: floor 1, pure; stands on contracts, pydantic and jsonschema-rs.
Not here: counting failed attempts (the session machine), and what a provider's dialect leaves out.
"""
