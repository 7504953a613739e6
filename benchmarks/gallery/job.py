"""One training of one side, as the argument of its process, and the seeds of its evaluation."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from parllel.runs import config_values, read_config
from parllel_patterns import TUNED, TunedConfig

FIRST_SEED = 1_000_000  # of the evaluation's episodes; far from those of trainings


@dataclass(frozen=True)
class Job:
    """A training with an evaluation of its final policy.

    Attributes:
        name: of the settings that `config` was made from, which says of which class it is.
        config: the settings with the seed of the training.
        n_eval_episodes: episodes to evaluate the final policy in.
    """

    name: str
    config: TunedConfig
    n_eval_episodes: int

    @property
    def eval_seeds(self) -> range:
        """The seeds of the evaluation's episodes."""
        return range(FIRST_SEED, FIRST_SEED + self.n_eval_episodes)

    def to_json(self) -> str:
        """Return the job as an argument of a command."""
        return json.dumps(
            {
                "name": self.name,
                "config": config_values(self.config),
                "n_eval_episodes": self.n_eval_episodes,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Job:
        """Return what `to_json` was made from."""
        values: dict[str, Any] = json.loads(text)
        kind: Any = type(TUNED[values["name"]])
        config: Any = read_config(kind, values["config"])
        return cls(values["name"], config, values["n_eval_episodes"])
