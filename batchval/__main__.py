"""The entry point of ``python -m batchval``."""

from batchval.cli import main

main()
