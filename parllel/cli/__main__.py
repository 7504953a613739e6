"""`python -m parllel.cli` is `parllel`."""

from parllel.cli.command import main

raise SystemExit(main())
