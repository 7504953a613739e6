"""Start child processes, watch them, and end them with everything that they have started.

    parent                                               child
    Child       start, exchange messages, end      <-->  in_child: set up, run the target
    Channel     messages over one pipe             <-->  Channel, or a plain Connection
    liveness    hold a pipe open                    -->  die when it hangs up
    ForkServer  ask for a fork, read the exit code <-->  in_fork_server: end what children leave behind
    Confinement namespaces, Landlock    -->  entered before code of others runs in the child
    Program     a foreign command line      <-->  in_program: guards that outlast exec; lines both ways
    orphans     find and kill what remains, by process_table (/proc)

`WatchedProcess` is the part of `Child` that also serves programs which are not Python.
"""

from parllel.system.counted_time import counted_s
from parllel.system.processes.channel import Channel
from parllel.system.processes.child import Child
from parllel.system.processes.confinement import (
    LANDLOCK_SIGNALS,
    Confinement,
    hide_from_others,
    landlock_version,
)
from parllel.system.processes.cores import affinity_cores, usable_cores
from parllel.system.processes.exceptions import pack_exception, raise_packed
from parllel.system.processes.fork_server import (
    forkserver_descriptors,
    forkserver_pid,
    preload_in_forkserver,
)
from parllel.system.processes.in_child import EXCEPTION
from parllel.system.processes.launch import StartMethod, check_start_method, default_start_method
from parllel.system.processes.orphans import environment_mark
from parllel.system.processes.owned import own
from parllel.system.processes.placement import Placement
from parllel.system.processes.process_table import (
    ProcessEntry,
    command_of,
    descendants,
    process_entry,
    process_runs,
)
from parllel.system.processes.program import Program
from parllel.system.processes.program_environment import PASSED_VARIABLES
from parllel.system.processes.restart_budget import RestartBudget
from parllel.system.processes.several import (
    Deaths,
    Handle,
    Handles,
    await_any,
    await_lines,
    end_all,
)
from parllel.system.processes.watched_process import StartedProcess, WatchedProcess

__all__ = [
    "EXCEPTION",
    "LANDLOCK_SIGNALS",
    "PASSED_VARIABLES",
    "Channel",
    "Child",
    "Confinement",
    "Deaths",
    "Handle",
    "Handles",
    "Placement",
    "ProcessEntry",
    "Program",
    "RestartBudget",
    "StartMethod",
    "StartedProcess",
    "WatchedProcess",
    "affinity_cores",
    "await_any",
    "await_lines",
    "check_start_method",
    "command_of",
    "counted_s",
    "default_start_method",
    "descendants",
    "end_all",
    "environment_mark",
    "forkserver_descriptors",
    "forkserver_pid",
    "hide_from_others",
    "landlock_version",
    "own",
    "pack_exception",
    "preload_in_forkserver",
    "process_entry",
    "process_runs",
    "raise_packed",
    "usable_cores",
]
