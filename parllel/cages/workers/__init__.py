"""Worker processes of cages::

    remote_cage         base class of both cages with processes: requests to the worker, bindings, seeds
    worker_pool         all workers of a SynchronizedProcessCage; a row that times out ends them
    control             the shared words that start rows and report their end
    worker, synchronized_worker, environment_share       the worker's side

Requests time out in `buffers/conversation.py`, and workers are killed in
`system/processes/watched_process.py`.
"""

__all__: list[str] = []
