"""Several processes that learn together, on one machine.

    first learner: Learners                        another learner: learner_process.py
    ask, answers  <------- Conversation, a pipe ------------------>  ChildConversation
    add, gather   <------- LearnerExchange, shared memory -------->  add, gather
                  -- liveness pipe hangs up ---------------------->  killed with its process group

The rest is in started_learners.py. The others are killed with the first.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from parllel.algos.learner_exchange import LearnerExchange
from parllel.buffers.conversation import Conversation
from parllel.cages.env_registry import RegistryTarget
from parllel.system.processes.child import Child
from parllel.system.processes.cores import usable_cores
from parllel.torch.learner_process import Place, serve
from parllel.torch.started_learners import StartedLearners


class Learners(StartedLearners):
    """Processes that learn together, each from its share of the environments; see docs/learners.md.

    Make it in the build function of a run, and pass it to the runner::

        def build(config, stack, folder, console):
            learners = stack.enter_context(Learners(config.learners, build, config))
            seeds = learners.seeds(config.seed)
            batch_spec = learners.share_of(BatchSpec(config.T, config.B))
            ...
            return OnPolicyRunner(batch_spec, sampler, PPO(agent, ...), learners=learners, ...)

    The other processes start when the run does. They call the same function, in which `rank` differs. The
    first learner sends them its weights, so all begin with equal ones. With n = 1 nothing is started.

    Args:
        n: number of learners, this process included.
        build: the build function that makes this object. It is pickled by cloudpickle.
        config: its config.
        timeout_s: time limit for building, for a batch, and for each exchange. Learners that die are noticed
            at once.
        start_method: "fork", "forkserver" or "spawn"; default forkserver where it exists.

    Attributes:
        n: number of learners.
        rank: number of this learner; 0 is the first.

    Raises:
        ValueError: if `n` is less than 1 or `timeout_s` is not positive.
        TypeError: if `n` is not an int.
    """

    def __init__(
        self,
        n: int,
        build: Callable[..., Any],
        config: Any,
        *,
        timeout_s: float = 300.0,
        start_method: str | None = None,
    ) -> None:
        super().__init__(n, build, config, timeout_s=timeout_s)
        self._start_method = start_method

    def cores(self) -> int:
        """Return an equal share of this machine's cores."""
        return usable_cores() // self.n

    def make_exchange(self) -> LearnerExchange:
        """Return the shared memory, which the processes inherit."""
        return LearnerExchange(self.n)

    def launch(self, exchange: LearnerExchange, folder: Path, threads: int) -> None:
        """Start the processes."""
        for rank in range(1, self.n):
            child = Child(
                # The environments that are registered here, too.
                RegistryTarget(serve),
                (Place(rank, str(folder), threads), self.build, self.config),
                inherited=exchange,
                name=f"learner {rank}",
                start_method=self._start_method,
                start_timeout_s=self.timeout_s,
            )
            self.others.append(_ChildLearner(child, self.timeout_s))


class _ChildLearner:
    """The first learner's end of its conversation with one in a child process."""

    def __init__(self, child: Child, timeout_s: float) -> None:
        self.name = child.name
        self._conversation = Conversation(child, timeout_s=timeout_s)
        self._op, self._number = "", 0

    def ask(self, op: str, *args: Any) -> None:
        self._op = op
        self._number = self._conversation.ask(op, *args, doing=f"before {op}")

    def answer(self) -> Any:
        return self._conversation.answer(self._number, f"during {self._op}")

    def lost(self) -> bool:
        return self._conversation.broken is not None or self._conversation.child.died()

    def failure(self) -> BaseException:
        return self._conversation.failure(f"during {self._op}")

    def begin_close(self) -> None:
        self._conversation.begin_close()

    def close(self) -> None:
        self._conversation.close(forgive=True)

    def kill(self) -> None:
        self._conversation.child.kill()
