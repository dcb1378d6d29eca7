"""Holds the pointers that batchval.compression.native has found, for core to call without the GIL."""

cdef Blocks BLOCKS
cdef bint BOUND = False

cdef bint native() noexcept nogil:
    return BOUND


def bind(dict addresses):
    """Takes the address of every function by its C name; an empty dict goes back to the Python packages."""
    global BOUND
    if not addresses:
        BOUND = False  # the addresses stay: another thread may be about to call one
        return
    BLOCKS.zstd_create_dctx = <ZstdCreateDCtx><size_t>addresses["ZSTD_createDCtx"]
    BLOCKS.zstd_free_dctx = <ZstdFreeDCtx><size_t>addresses["ZSTD_freeDCtx"]
    BLOCKS.zstd_decompress_begin = <ZstdDecompressBegin><size_t>addresses["ZSTD_decompressBegin"]
    BLOCKS.zstd_next_src_size = <ZstdNextSrcSize><size_t>addresses["ZSTD_nextSrcSizeToDecompress"]
    BLOCKS.zstd_next_input_type = <ZstdNextInputType><size_t>addresses["ZSTD_nextInputType"]
    BLOCKS.zstd_decompress_continue = <ZstdDecompressContinue><size_t>addresses["ZSTD_decompressContinue"]
    BLOCKS.zstd_decompress_dctx = <ZstdDecompressDCtx><size_t>addresses["ZSTD_decompressDCtx"]
    BLOCKS.zstd_is_error = <ZstdIsError><size_t>addresses["ZSTD_isError"]
    BLOCKS.lz4_decompress_safe = <Lz4DecompressSafe><size_t>addresses["LZ4_decompress_safe"]
    BOUND = True
