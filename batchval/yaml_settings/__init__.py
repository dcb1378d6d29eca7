"""Read files of settings in YAML, and report their faults, a line each."""

from batchval.optional import require

require(__name__)
