"""Freezing of the fork server's imports, on import of this module, so that collections in children skip them.

A collection touches every object, and so copies, in a child, all memory shared with the server. Only the fork
server may import this module, as the last one.
"""

import gc

gc.freeze()
gc.enable()
