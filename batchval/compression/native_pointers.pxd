"""The block decompressors, as C functions called by pointer."""

from libc.stddef cimport size_t

ctypedef int (*Lz4DecompressSafe)(const char *source, char *to, int size,
        int capacity) noexcept nogil
ctypedef void *(*ZstdCreateDCtx)() noexcept nogil
ctypedef size_t (*ZstdFreeDCtx)(void *dctx) noexcept nogil
ctypedef size_t (*ZstdDecompressBegin)(void *dctx) noexcept nogil
ctypedef size_t (*ZstdNextSrcSize)(void *dctx) noexcept nogil
ctypedef size_t (*ZstdDecompressContinue)(void *dctx, void *to, size_t capacity, const void *source,
        size_t size) noexcept nogil
ctypedef size_t (*ZstdDecompressDCtx)(void *dctx, void *to, size_t capacity, const void *source,
        size_t size) noexcept nogil
ctypedef int (*ZstdNextInputType)(void *dctx) noexcept nogil
ctypedef unsigned int (*ZstdIsError)(size_t code) noexcept nogil

cdef struct Blocks:
    Lz4DecompressSafe lz4_decompress_safe
    ZstdCreateDCtx zstd_create_dctx
    ZstdFreeDCtx zstd_free_dctx
    ZstdDecompressBegin zstd_decompress_begin
    ZstdNextSrcSize zstd_next_src_size
    ZstdNextInputType zstd_next_input_type
    ZstdDecompressContinue zstd_decompress_continue
    ZstdDecompressDCtx zstd_decompress_dctx
    ZstdIsError zstd_is_error

# NULL while the provider is ``packages``; read once a call, with the GIL.
cdef const Blocks *CURRENT
