"""`parllel export RUN --to FILE`: a run's policy as a file, or folder, that acts without parllel."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from parllel.cli.rerun import changes_of
from parllel.policies.policy_loading import load_policy
from parllel.policies.run_policy import RunPolicy
from parllel.runs.trust import check_source
from parllel.torch.exports.export_policy import CHECKED, export_policy
from parllel.torch.exports.file_formats import FORMATS, format_of
from parllel.torch.exports.hub_folder import check_folder, export_folder


def run(arguments: argparse.Namespace) -> int:
    """Write the file or folder and print its inputs and outputs. Returns the exit status."""
    check_source(arguments.run, trusted=arguments.trust)
    if not arguments.to:
        raise ValueError("--to: expected a file or folder, got ''")
    path = Path(arguments.to)
    is_folder = not path.suffix or arguments.to.endswith(("/", os.sep))
    # Before the run is built, which can take seconds.
    if is_folder:
        check_folder(path)
    elif path.suffix not in FORMATS:
        raise ValueError(
            f"--to: expected a file that ends in {' or '.join(FORMATS)}, or a folder, whose name ends "
            f"in {os.sep}, got {arguments.to}"
        )
    else:
        format_of(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"--to: there is no folder {path.parent}")
    changes = changes_of(arguments.changes)
    with load_policy(Path(arguments.run), best=arguments.best, changes=changes) as policy:
        print(f"policy after {policy.elapsed_steps:,} environment steps")
        if is_folder:
            config = export_folder(
                policy,
                path,
                run=arguments.run,
                environment=_environment_of(policy),
                params=arguments.params,
            )
            description = config["policy"]
        else:
            description = export_policy(policy, path, params=arguments.params)
    print(f"{sum(CHECKED):,} random observations: the actions are those of the run")
    for role in ("inputs", "outputs"):
        print(f"{role}: {', '.join(map(_tensor, description[role]))}")
    if is_folder:
        print(
            f"The folder for the Hugging Face Hub is {path}; look at its README.md before you upload it"
        )
    else:
        print(f"The policy is {path} ({path.stat().st_size:,} bytes)")
    return 0


def _environment_of(policy: RunPolicy) -> str:
    """Return the id that gymnasium knows the run's environments by, or the name of their class."""
    env = policy.make_env()
    try:
        return type(env.unwrapped).__name__ if env.spec is None else str(env.spec.id)
    finally:
        env.close()


def _tensor(described: dict[str, Any]) -> str:
    shape = ", ".join(map(str, described["shape"]))
    return f"{described['name']} {described['dtype']} [{shape}]"
