"""Entry point of `python -m parllel.cli`, the same as `parllel`."""

from parllel.cli.command import main

raise SystemExit(main())
