"""The flags of a training script, made by tyro from the fields of its config."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from typing import Annotated, Any

from parllel.errors import install_command
from parllel.runs import key_paths, nearest_key, whole_number


def parse_flags(
    config_class: type,
    base: str,
    argv: Sequence[str],
    before: Any,
    about: str,
    curve: str | None = None,
) -> Any:
    """Return the values of the flags: `config`, `runs` and `resume` as attributes.

    base: default of `--runs`.
    before: the config that flags change; None for the defaults of the class.
    about: beginning of the help text.
    curve: help text of `--curve`, whose value is the attribute `curve`; None: there is no such flag.

    Raises:
        SystemExit: with status 2 for a wrong command line, 0 after `--help`.
        ImportError: without tyro; names the extra.
    """
    try:
        import tyro
    except ImportError as error:
        raise ImportError(
            f"command lines need tyro: {install_command('cli')}", name=error.name
        ) from error
    # An empty name: `--n-steps`, not `--config.n-steps`.
    flags: Any = Annotated[(config_class, tyro.conf.arg(name=""))]  # type: ignore[valid-type,misc]
    runs: Any = Annotated[str, tyro.conf.arg(help="folder of all runs")]
    help_of_resume = "folder of a run to continue; other flags change its config"
    resumed: Any = Annotated[str | None, tyro.conf.arg(help=help_of_resume, metavar="RUN")]
    if before is not None:
        first: Any = dataclasses.field(default_factory=lambda: before)
    elif _has_defaults(config_class):
        first = dataclasses.field(default_factory=config_class)
    else:
        first = dataclasses.field()
    fields = [
        ("config", flags, first),
        ("runs", runs, dataclasses.field(default=base)),
        ("resume", resumed, dataclasses.field(default=None)),
    ]
    if curve is not None:
        named: Any = Annotated[str | None, tyro.conf.arg(help=curve, metavar="NAME")]
        fields.append(("curve", named, dataclasses.field(default=None)))
    kind = dataclasses.make_dataclass("Arguments", fields)
    # Rules of this call alone: those of a script that uses tyro itself stay as they are.
    registry = tyro.constructors.ConstructorRegistry()
    registry.primitive_rule(_rule_of_ints)
    try:
        with registry:
            return tyro.cli(kind, args=list(argv), description=about)
    except SystemExit as end:
        if end.code:
            _hint(argv, config_class)
        raise


def early_flag(argv: Sequence[str], name: str) -> str | None:
    """Return the value of one flag, which decides how the others are read."""
    # No abbreviations: tyro, which reads the same arguments later, would not accept them.
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument(name, dest="value")
    value: str | None = parser.parse_known_args(argv)[0].value
    return value


def _rule_of_ints(info: Any) -> Any:
    """Read `--n-steps 1e6` as `parllel resume RUN n_steps=1e6` does, where tyro would refuse it."""
    from tyro.constructors import PrimitiveConstructorSpec

    if info.type is not int:
        return None
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="INT",
        instance_from_str=lambda args: whole_number(args[0]),
        # True is an int to Python, but no number of steps.
        is_instance=lambda value: isinstance(value, int) and not isinstance(value, bool),
        str_from_instance=lambda value: [str(value)],
    )


def _hint(argv: Sequence[str], config_class: type) -> None:
    """Suggest a full path for a short name; tyro itself has a suggestion for misspelt names."""
    known = key_paths(config_class)
    for argument in argv:
        path = argument.partition("=")[0].removeprefix("--").replace("-", "_")
        if argument.startswith("--") and path not in known:
            near = nearest_key(path, config_class)
            if near is not None and near != path:
                flag = "--" + near.replace("_", "-")
                print(f"{argument.partition('=')[0]}: did you mean {flag}?", file=sys.stderr)


def _has_defaults(config_class: type) -> bool:
    missing = dataclasses.MISSING
    return all(
        field.default is not missing or field.default_factory is not missing
        for field in dataclasses.fields(config_class)
        if field.init
    )
