"""Child processes: started, watched, and ended together with everything that they have started.

    parent                                               child
    Child       start, exchange messages, end      <-->  in_child: set up, run the target
    PipeEnd     messages over one pipe             <-->  PipeEnd, or a plain Connection
    liveness    holds a pipe open                   -->  dies when it hangs up
    ForkServer  ask for a fork, read the exit code <-->  in_fork_server: end what children leave behind
    Confinement namespaces, Landlock                -->  entered before untrusted code runs in the child
    Program     a foreign command line             <-->  in_program: guards that outlast exec; lines both ways
    orphans     find and kill what remains, by process_table (/proc)

`WatchedProcess` is the common base of `Child` and `Program`.
"""

from parllel.system.processes.exceptions import raise_packed
from parllel.system.processes.owned import own
from parllel.system.processes.program import Program
from parllel.system.processes.program_start import PASSED_VARIABLES
from parllel.system.processes.restart_budget import RestartBudget

__all__ = [
    "PASSED_VARIABLES",
    "Program",
    "RestartBudget",
    "own",
    "raise_packed",
]
