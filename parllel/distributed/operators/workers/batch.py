"""Batch mode: plays an episode per seed without a driver, by the same protocol.

this process     InteractiveRuntime  <-- commands, replies -->  the loop of `play_batch`
telemetry        <-- a record of each step and episode          (telemetry.py)
standard output  <-- the records of episodes
standard error   <-- progress, and what libraries print
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym

from parllel.distributed.operators.experiments.episode_outcome import (
    MAX_STEPS,
    MIN_UNDERSTOOD,
    DecisionCounts,
    step_record,
    understanding_warning,
)
from parllel.distributed.operators.experiments.telemetry import Telemetry
from parllel.distributed.operators.protocol.message_lines import read_reply, write_command
from parllel.distributed.operators.protocol.messages import AnyCommand, ResetCommand, StepCommand
from parllel.distributed.operators.protocol.protocol_streams import take_streams
from parllel.distributed.operators.workers.interactive_runtime import InteractiveRuntime, error_text
from parllel.distributed.operators.workers.serving import run_loaded
from parllel.distributed.operators.workers.termination_signal import TerminationSignal

TELEMETRY_DIR = "var/operators/telemetry"  # the launcher's default
Record = dict[str, Any]


def play_batch(
    agent: Any,
    env_factory: Callable[[], gym.Env[Any, Any]],
    seeds: Sequence[int],
    *,
    run_id: str | None = None,
    env_id: str | None = None,
    max_steps: int | None = None,
    telemetry_dir: str | None = None,
    min_understood: float = MIN_UNDERSTOOD,
) -> int:
    """Play an episode for each seed. Returns the exit status.

    The exit status is 1 if an episode failed, if loading failed, or if too few answers of a
    language model were understood. After a failed episode the next one is played. SIGTERM and
    Ctrl-C end the batch and close environment and agent. Only the steps of an interrupted episode
    are recorded.

    Args:
        agent, env_factory, env_id, max_steps: as for `serve`.
        seeds: one seed of the environment per episode. The agent's seeds are derived from them.
        run_id: run id of the telemetry. Default: the environment variable OPERATOR_RUN_ID, or an id
            derived from the time if it is not set.
        telemetry_dir: folder for the telemetry. Default: the environment variable TELEMETRY_DIR, or
            `var/operators/telemetry` in the current folder.
        min_understood: minimum fraction of a language model's decisions that must be understood,
            from 0 to 1.
    """
    run_id = run_id or os.environ.get("OPERATOR_RUN_ID") or _new_id()
    folder = telemetry_dir or os.environ.get("TELEMETRY_DIR") or TELEMETRY_DIR
    arguments = {
        "env_factory": env_factory,
        "run_id": run_id,
        "env_id": env_id,
        "max_steps": max_steps,
    }

    def play(runtime: InteractiveRuntime, signals: list[int]) -> int:
        try:
            telemetry = Telemetry(folder, run_id)
        except (ValueError, OSError) as error:
            print(f"telemetry: {error}", file=sys.stderr)
            return 1
        with telemetry:
            return _EpisodeBatch(runtime, telemetry, env_id, signals).play(seeds, min_understood)

    return run_loaded(agent, arguments, batch_failed, play)


def batch_failed(error: BaseException, what: str = "policy") -> int:
    """Print why a batch cannot start. Returns the exit status, 1."""
    print(f"Failed to load {what}: {error_text(error)}", file=sys.stderr)
    return 1


class _EpisodeBatch:
    """Plays the episodes of a batch, one after another."""

    def __init__(
        self,
        runtime: InteractiveRuntime,
        telemetry: Telemetry,
        env_id: str | None,
        signals: list[int],
    ) -> None:
        self._runtime, self._telemetry = runtime, telemetry
        self._env_id, self._signals = env_id, signals
        self._operator_id = os.environ.get("OPERATOR_ID") or telemetry.run_id

    def play(self, seeds: Sequence[int], min_understood: float) -> int:
        """Play all episodes. Returns the exit status."""
        # Records go to the private descriptor: whatever libraries print ends up on standard error.
        out, n_failed = take_streams(), 0
        decisions = understood = 0
        for number, seed in enumerate(seeds):
            record = self._episode(number, seed)
            n_failed += record["status"] == "failed"
            out.write(self._telemetry.episode(record))
            result = record.get("failure") or f"return {record['total_reward']:g}"
            done = f"episode {number + 1} of {len(seeds)}, seed {seed}"
            print(f"{done}: {result}, {record['episode_length']} steps", file=sys.stderr)
            decisions += record.get("decisions", 0)
            understood += record.get("understood", 0)
        name = self._operator_id
        warning = understanding_warning(name, understood, decisions, min_understood)
        if warning is not None:
            print(warning, file=sys.stderr)
        return 1 if n_failed or warning is not None else 0

    def _episode(self, number: int, seed: int) -> Record:
        """Play an episode and return its record."""
        found: Record = {"status": "failed", "total_reward": 0.0, "episode_length": 0}
        found.update(terminated=False, truncated=False, success=None, restarts=0, latency_s=0.0)
        (reply,) = self._ask(ResetCommand(seed=seed))
        self._env_id = reply.get("env_id", self._env_id)  # unless the reset failed
        counts = DecisionCounts()
        labels: Record = {"operator_id": self._operator_id, "env_id": self._env_id}
        labels.update(episode=number, seed=seed)
        while reply["type"] != "error":
            if found["terminated"] or found["truncated"]:
                return {**labels, **found, "status": "ended"}
            if found["episode_length"] == MAX_STEPS:
                reply = {"message": f"no end within {MAX_STEPS:,} steps; give --max-steps"}
                break
            begun = time.perf_counter()
            reply, *end = self._ask(StepCommand())
            if reply["type"] == "step":
                self._add(labels, found, counts, reply, time.perf_counter() - begun)
                found.update(counts.sums)
            if end:
                found["success"] = end[0].get("success")
        unplayed = counts.unplayed(reply)
        if unplayed:
            found.update(counts.sums, unplayed=unplayed)
        return {**labels, **found, "failure": reply["message"]}

    def _add(
        self,
        labels: Record,
        found: Record,
        counts: DecisionCounts,
        reply: Record,
        latency_s: float,
    ) -> None:
        """Record a step and add it to the episode's totals."""
        found.update(
            total_reward=reply["episode_reward"],
            episode_length=reply["step_index"],
            terminated=reply["terminated"],
            truncated=reply["truncated"],
        )
        found["latency_s"] += latency_s
        record = step_record(
            reply,
            step=reply["step_index"],
            terminated=reply["terminated"],
            truncated=reply["truncated"],
            episode_reward=reply["episode_reward"],
            latency_s=latency_s,
        )
        counts.note(reply, record)
        self._telemetry.step({**labels, **record})

    def _ask(self, command: AnyCommand) -> list[Record]:
        # The exception may have been swallowed by an agent or environment that catches everything.
        if self._signals:
            raise TerminationSignal
        lines = self._runtime.answer(write_command(command))
        return [read_reply(line) for line in lines.splitlines()]


def _new_id() -> str:
    return f"batch-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
