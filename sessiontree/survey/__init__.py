"""The survey: reads every file below a directory and says what is there.

Room: floor 7, a face. Analysis of one file (``source.py`` and what it asks), findings that merge
(``finding.py``), the grouping of a whole tree (``scan.py``, ``plan.py``), the report, and the two tools.
Not here: any decision of the runtime, and any way to open a file other than through a ``Reader``.
"""
