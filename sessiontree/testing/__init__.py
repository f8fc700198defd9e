"""Shipped fakes and contexts for tests, ours and those of people who write tools.

Room: stands beside the faces; may use floors 0 to 5 except the actors. Only tests import it.
"""
