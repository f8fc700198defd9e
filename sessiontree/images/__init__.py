"""Images made fit for a model: checked by their header, shrunk, without metadata, in a process of their own.

Room: below dispatch, which shows nothing that did not pass here. Pillow runs in that process alone.
Not here: how large they may be (``contracts.images``), and which results carry them (dispatch).
"""
