"""Files of settings in YAML: what is read, and what is wrong with it, a line each."""

from batchval.optional import require

require(__name__)
