"""Worker processes of cages::

    remote_cage         what both cages with processes share: requests to the worker, bindings, seeds
    worker_pool         all workers of a SynchronizedProcessCage; a row that takes too long ends them
    control             the words by which rows are started and seen to be finished
    worker, synchronized_worker, environment_share       what runs in a worker

The time-out of a request, after which a worker is killed, is that of `buffers/conversation.py`; the kill
itself is in `system/processes/watched_process.py`.
"""

__all__: list[str] = []
