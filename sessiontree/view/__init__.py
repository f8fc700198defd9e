"""Views of a tree: the model that every face draws, its content, and the page that shows it in a browser.

Floor 5, over ``backends``. Not here: listening for viewers (``serve``), a terminal's picture (``cli``), or
acting on a tree (``api``).
"""
