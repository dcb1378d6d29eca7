"""The engine's face: validator, results, columns, batches to read and to build."""
