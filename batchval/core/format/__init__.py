"""The bytes of a batch: layouts, headers, checksums, and the numbers of reasons."""
