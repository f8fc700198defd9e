"""The browser: one confined Chromium for each session that opens pages.

Floor 3, over ``sandbox``. The browser's process has no network, no file of the user and an empty profile. Its
only ways out are two sockets of the host that started it: one for orders and answers, and one on which the
browser finds its proxy. The host makes each connection itself, under the address rules of the web.
Not here: those rules (``web``), who may ask (``runtime``), or what a page means (tools).
"""
