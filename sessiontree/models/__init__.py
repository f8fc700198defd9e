"""Models: who answers a session: scripted models, Python functions, and the logic of asking one.

Room: floor 3; turns a request into a reply and counts what it used.
Not here: the transcript (session), keeping a reply durable (journal).
"""
