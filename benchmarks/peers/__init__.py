"""Other agent libraries doing the work the dispatch benchmark times; none of ours, and each runs by itself.

A module is one peer: ``PACKAGE`` names its distribution, ``prepare(turns)`` returns what runs once. It does
as its own documentation says is done in one process with a model that is a procedure.
"""
