"""`python -m depsue` is `depsue`."""

from depsue.cli.main import main

main()
