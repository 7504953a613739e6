"""Communication beyond shared memory. The core needs none of these packages.

wire         trees as bytes and JSON
web          a guarded server and an HTTP client, which those below use
remote       agents behind URLs, by JSON or protobuf, and the episodes that they play
operators    workers with their own dependencies, by lines of JSON
rollouts     fragments of experience and weights, in threads or over Ray
messaging    agents of one environment, over a broker
"""

__all__: list[str] = []
