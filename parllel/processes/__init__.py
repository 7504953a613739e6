"""Child processes: started in any way, watched, ended with all that is theirs."""

from parllel.processes.channel import Channel
from parllel.processes.child import EXCEPTION, Child
from parllel.processes.cores import affinity_cores, usable_cores
from parllel.processes.exceptions import pack_exception, raise_packed
from parllel.processes.launch import (
    StartMethod,
    check_start_method,
    default_start_method,
    forkserver_pid,
    preload_in_forkserver,
)
from parllel.processes.placement import Placement

__all__ = [
    "EXCEPTION",
    "Channel",
    "Child",
    "Placement",
    "StartMethod",
    "affinity_cores",
    "check_start_method",
    "default_start_method",
    "forkserver_pid",
    "pack_exception",
    "preload_in_forkserver",
    "raise_packed",
    "usable_cores",
]
