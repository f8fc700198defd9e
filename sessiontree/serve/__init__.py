"""The local web server: trees of this user in a browser, live ones through their program's control socket.

Floor 6, over ``sync``. Needs the extra ``serve``. Not here: what a page shows of a tree (``view``), or the
rules of answering and stopping (``tree``).
"""
