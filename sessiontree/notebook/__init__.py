"""Trees in a notebook: the widget of a cell, pictures for a saved notebook, figures, and ``%tree``.

Floor 6, over ``serve``. The widget needs the extra ``notebook``. Not here: the page that the widget draws
(``view/page``), or what a person may do in it (``serve.served_tree``).
"""
