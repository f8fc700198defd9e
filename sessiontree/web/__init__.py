"""The web under the project's address rules.

Floor 3. A URL is normalised once. The addresses of its host are judged when the connection is made, and the
connection goes to a judged address, so nothing can change in between. Bodies are bounded after decompression.
Not here: what a page means (tools), who may ask (``runtime``), or which session may change something there.
"""
