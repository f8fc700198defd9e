"""The gate through which every question to a remote model goes: ids, names, pairs, text that can be encoded.

Not here: which messages are cut because a conversation is too long; the session machine decides that.
"""
