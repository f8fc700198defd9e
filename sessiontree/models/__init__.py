"""Models: the port that a model implements, models without a provider, and the assembly of streamed replies.

Floor 3. A model turns a request into a reply and reports its usage.
Not here: the transcript (``session``), or making a reply durable (``journal``).
"""
