"""Entry point of `python -m parllel`, the same as `parllel`."""

from parllel.cli.command import main

raise SystemExit(main())
