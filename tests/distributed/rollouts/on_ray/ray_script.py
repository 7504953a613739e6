"""What a user's script defines, which other processes cannot import: it travels to workers as a whole."""

from __future__ import annotations

from weighted_agent import weighted
from worker_setup import B, T, make_cages, ready, rows

from parllel.cages import TrajInfo
from parllel.distributed.rollouts import FragmentSender, RolloutWorker
from parllel.transforms import NormalizeObservations


class ScriptTraj(TrajInfo):
    """Counts half steps."""

    def __init__(self):
        super().__init__()
        self.halves = 0.0

    def step(self, *arguments):
        super().step(*arguments)
        self.halves += 0.5


def build_worker(place):
    """Worker 0 has the schedule in rows, worker 1 the other; both remember, and normalise."""
    step, handler = [NormalizeObservations()], weighted(recurrent=True, n_envs=2 * B)
    if place.name == "worker 0":
        schedule = rows(handler, recurrent=True, step=step, traj_info=ScriptTraj)
    else:
        cages = make_cages("single", traj_info=ScriptTraj)
        schedule = ready(cages, handler, batch_size=2, step=step)
    sender = FragmentSender(place.storage, capacity=B)
    place.stack.callback(sender.close, 0.0)
    return RolloutWorker(
        schedule,
        fragment_length=T,
        seed=0,
        producer=place.name,
        sender=sender,
        statistics=place.statistics,
    )
