"""The tests. Import helpers from the repository's root: ``from tests.support import batches``."""
