"""Audits of log segments at rest: ranges of segments in, rows out. Every engine maps over these
ranges.
"""

from batchval.optional import require

require(__name__)
