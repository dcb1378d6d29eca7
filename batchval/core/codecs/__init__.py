"""The codecs of batches, decompressed block by block, and the memory for it."""
