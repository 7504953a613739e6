"""The model card of an exported folder, in the format of the Hugging Face Hub."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

_CARD = """\
# {name}

A policy for {environment}, trained with parllel for {steps} environment steps. The agent is a `{agent}`.

{evaluation}

## Use

`policy.onnx` runs with ONNX Runtime, `policy.pt` with `torch.jit.load`. Neither needs parllel. Observations
are those of N environments, stacked and not normalised: the policy does what training did with them.

```python
{imports}import onnxruntime

session = onnxruntime.InferenceSession("policy.onnx")
{use}
```

{tensors}

`config.json` has the spaces, the run's parameters and the numbers of this page.

## Training

{parameters}

Versions: {versions}.
"""


def model_card(config: Mapping[str, Any]) -> str:
    """Return the README.md of a folder, with YAML front matter, from its config.json."""
    policy = config["policy"]
    return _front_matter(config) + _CARD.format(
        name=config["name"],
        environment=config["environment"],
        steps=f"{policy['elapsed_steps']:,}",
        agent=policy["agent"],
        evaluation=_evaluation(config["evaluation"]),
        imports="import json\n\nimport numpy as np\n" if policy["recurrent"] else "",
        use=_use(policy),
        tensors=_tensors(policy),
        parameters=_table(("parameter", "value"), _flat(config["config"])),
        versions=", ".join(f"{name} {number}" for name, number in config["versions"].items()),
    )


def _front_matter(config: Mapping[str, Any]) -> str:
    """Return the metadata. Each scalar is JSON, which is YAML too, whatever is in a name."""
    environment, evaluation = json.dumps(config["environment"]), config["evaluation"]
    lines = [
        "---",
        "library_name: parllel",
        "pipeline_tag: reinforcement-learning",
        "tags:",
        "- reinforcement-learning",
        "- onnx",
        f"- {environment}",
        f"- {json.dumps(config['policy']['agent'])}",
    ]
    if evaluation is not None:
        lines += [
            "model-index:",
            f"- name: {json.dumps(config['name'])}",
            "  results:",
            "  - task:",
            "      type: reinforcement-learning",
            "      name: reinforcement-learning",
            "    dataset:",
            f"      type: {environment}",
            f"      name: {environment}",
            "    metrics:",
            "    - type: mean_reward",
            f"      value: {json.dumps(_with_deviation(evaluation))}",
            "      name: mean_reward",
            "      verified: false",
        ]
    return "\n".join([*lines, "---", "", ""])


def _with_deviation(evaluation: Mapping[str, float]) -> str:
    """Return the mean with the standard deviation over episodes, as the Hub's leaderboards read it."""
    return f"{evaluation['return/mean']:.2f} +/- {evaluation.get('return/std', 0.0):.2f}"


def _evaluation(evaluation: Mapping[str, float] | None) -> str:
    if evaluation is None:
        return "This checkpoint was not evaluated in training."
    # A row for each quantity, such as return, and a column for each of its statistics.
    rows: dict[str, dict[str, str]] = {}
    for name, number in evaluation.items():
        quantity, _, statistic = name.rpartition("/") if "/" in name else (name, "", "value")
        rows.setdefault(quantity, {})[statistic] = f"{number:g}"
    statistics = list(dict.fromkeys(statistic for found in rows.values() for statistic in found))
    cells = [
        (quantity.replace("/", " "), *(found.get(one, "") for one in statistics))
        for quantity, found in rows.items()
    ]
    table = _table(("of episodes", *statistics), cells)
    return f"The evaluation of this checkpoint in training:\n\n{table}"


def _use(policy: Mapping[str, Any]) -> str:
    observations = [x["name"] for x in policy["inputs"] if "first" not in x]
    inputs = ", ".join(
        f'"{name}": {"observation" if name == "observation" else _part(name)}'
        for name in observations
    )
    if not policy["recurrent"]:
        return f'(action,) = session.run(["action"], {{{inputs}}})'
    return (
        'with open("config.json") as file:\n'
        '    tensors = json.load(file)["policy"]["inputs"]\n'
        "# At the start of N episodes; then what the policy returned.\n"
        "state = {\n"
        '    x["name"]: np.array([x["first"]] * N, x["dtype"]) for x in tensors if "first" in x\n'
        "}\n"
        f"action, *after = session.run(None, {{{inputs}, **state}})\n"
        "state = dict(zip(state, after))"
    )


def _part(name: str) -> str:
    return "observation" + "".join(f"[{json.dumps(part)}]" for part in name.split(".")[1:])


def _tensors(policy: Mapping[str, Any]) -> str:
    rows = [
        (role.removesuffix("s"), f"`{x['name']}`", x["dtype"], ", ".join(map(str, x["shape"])))
        for role in ("inputs", "outputs")
        for x in policy[role]
    ]
    return _table(("tensor", "name", "dtype", "shape"), rows)


def _flat(values: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield dotted names and values of a config."""
    if isinstance(values, Mapping):
        for name, value in values.items():
            yield from _flat(value, f"{path}.{name}" if path else name)
    else:
        yield path, json.dumps(values)


def _table(header: tuple[str, ...], rows: Any) -> str:
    lines = [header, ("---",) * len(header), *rows]
    return "\n".join(
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines
    )
