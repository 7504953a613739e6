"""Make the fork server, on import, keep the garbage collector from what has been imported so far.

A collection looks at every object, and so copies, in a child, all memory that it shares with the server. Only
the fork server may import this module, as the last one.
"""

import gc

gc.freeze()
gc.enable()
