"""The pointers that batchval.compression.native has found, for core to call without the GIL.

A set of pointers is never changed and never freed, and ctypes never unloads a library: a call that
has read CURRENT may use what it read to its end, whatever ``bind`` does meanwhile.
"""

from libc.stdlib cimport malloc
from libc.string cimport memcmp, memset

cdef const Blocks *CURRENT = NULL
cdef Known *KNOWN = NULL

cdef struct Known:
    Blocks blocks
    Known *next


def bind(dict addresses):
    """Take the address of every function by its C name; an empty dict goes back to the Python
    packages.

    Calls that run already finish with the functions they started with.
    """
    global CURRENT, KNOWN
    cdef Blocks blocks
    cdef Known *known
    if not addresses:
        CURRENT = NULL
        return
    memset(&blocks, 0, sizeof(Blocks))
    blocks.zstd_create_dctx = <ZstdCreateDCtx><size_t>addresses["ZSTD_createDCtx"]
    blocks.zstd_free_dctx = <ZstdFreeDCtx><size_t>addresses["ZSTD_freeDCtx"]
    blocks.zstd_decompress_begin = <ZstdDecompressBegin><size_t>addresses["ZSTD_decompressBegin"]
    blocks.zstd_next_src_size = <ZstdNextSrcSize><size_t>addresses["ZSTD_nextSrcSizeToDecompress"]
    blocks.zstd_next_input_type = <ZstdNextInputType><size_t>addresses["ZSTD_nextInputType"]
    blocks.zstd_decompress_continue = (
            <ZstdDecompressContinue><size_t>addresses["ZSTD_decompressContinue"])
    blocks.zstd_decompress_dctx = <ZstdDecompressDCtx><size_t>addresses["ZSTD_decompressDCtx"]
    blocks.zstd_is_error = <ZstdIsError><size_t>addresses["ZSTD_isError"]
    blocks.lz4_decompress_safe = <Lz4DecompressSafe><size_t>addresses["LZ4_decompress_safe"]
    known = KNOWN
    while known is not NULL and memcmp(&known.blocks, &blocks, sizeof(Blocks)) != 0:
        known = known.next
    if known is NULL:
        known = <Known *>malloc(sizeof(Known))
        if known is NULL:
            raise MemoryError()
        known.blocks = blocks
        known.next = KNOWN
        KNOWN = known
    CURRENT = &known.blocks
