"""The protocols of OpenAI's clients: Open Responses and chat completions.

Not here: routes and streams over HTTP (``serve/routes``), or any rule of rights (``policy``).
"""
