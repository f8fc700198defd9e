"""Previews: pages that sessions publish, kept as copies in memory and served on a loopback address.

Floor 3. What is served was read before, under the rules of the workspace: a request opens no file.
Not here: reading the files (tools), who may publish (``runtime``), or pages of trees (``serve``).
"""
