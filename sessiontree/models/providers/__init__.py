"""Models of providers by name, such as ``anthropic:claude-sonnet-5``, asked through pydantic-ai.

Importing this room loads no provider's library: ``provider_model`` names ``provider_calls``, which is loaded
with the first question, in the process that asks it.
"""
