"""What parameters of tools and results of sessions look like: JSON Schemas, their dialects, values that fit.

Room: floor 1, pure; stands on contracts, pydantic and jsonschema-rs.
Not here: counting failed attempts (the session machine), and asking providers anything (models).
"""
