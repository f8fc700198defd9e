"""The files beneath one root: reading and changing them, and the only code that opens a user's files.

Room: floor 3. A path is resolved beneath the root's directory descriptor, by the kernel where it can; what
was checked is the descriptor that is used, so a link swapped in between leads nowhere.
Not here: deciding who may write (policy), confining commands (sandbox), or what a file means (tools).
"""

from sessiontree.workspace.reader import WorkspaceReader
from sessiontree.workspace.writer import WorkspaceWriter

__all__ = ["WorkspaceReader", "WorkspaceWriter"]
