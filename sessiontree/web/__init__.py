"""The web, read under the address rules of this house.

Room: floor 3. An address is normalised once, its host's addresses are judged where the connection is made,
and the connection goes to the address that was judged; so nothing can change in between. Bodies are bounded
after decompression.
Not here: what a page means (tools), who may ask (kernel), and any request but GET.
"""
