"""Audits of log segments at rest: ranges of segments in, rows out. Every engine is a map over these
ranges.
"""

from batchval.optional import require

require(__name__)
