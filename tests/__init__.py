"""The tests. The repository's root is the one import root: ``from tests.support.batches import batch``."""
