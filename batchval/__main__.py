"""``python -m batchval``."""

from batchval.cli import main

main()
