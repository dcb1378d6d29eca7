"""Batches that are made: built of records, converted to another format, without aborted ones."""
