/* Raw deflate (RFC 1951) with zlib's idea of what is valid, into a window that the caller owns. */
#ifndef BATCHVAL_INFLATE_H
#define BATCHVAL_INFLATE_H
#include <stddef.h>
#include <stdint.h>

enum {
    INFLATE_DONE,        /* the last block has ended; `in` stands after it */
    INFLATE_FULL,        /* the window is full: make space, call again */
    INFLATE_SHORT,       /* the input ends inside the stream: all that its bits allow has come out; with a later
                            in_end, call again */
    INFLATE_BAD          /* zlib would say Z_DATA_ERROR */
};
enum { INFLATE_HISTORY = 32768 }; /* bytes before `at` that must stay in the window between calls */

enum { LENGTH_BITS = 11, LENGTH_TABLE = 2342, DISTANCE_BITS = 8, DISTANCE_TABLE = 402, PRECODE_BITS = 7 };

typedef struct {
    const uint8_t *in, *in_end;
    uint64_t bits;                  /* the next bit_count bits, lowest first (higher ones may hold what `in` points at) */
    int bit_count;
    int block, last_block;          /* what the input stands in */
    uint32_t stored_left;           /* of a stored block */
    uint32_t match_left, distance;  /* of a match that did not fit */
    uint64_t produced;              /* bytes of this stream so far: no distance may reach further back */
    const uint32_t *lengths, *distances;
    int length_bits, distance_bits; /* of their indexes */
    /* where in the input literals of this block will be paired; NULL: not any more */
    const uint8_t *pair_at;
    uint32_t length_table[LENGTH_TABLE], distance_table[DISTANCE_TABLE];
} Inflate;

void inflate_init(void);            /* once, before all else */
void inflate_start(Inflate *s, const uint8_t *in, const uint8_t *in_end);
/* Writes to window[*at ..end), moves *at. Between calls the caller may move the window's bytes, as long as
 * min(produced, INFLATE_HISTORY) of them stand right before *at. */
int inflate_run(Inflate *s, uint8_t *window, size_t *at, size_t end);
#endif
