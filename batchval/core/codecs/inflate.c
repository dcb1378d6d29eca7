/* Raw deflate, bits to bytes.
 *
 *   stream  = block+                                   block  = last:1 kind:2 body
 *   stored  = pad to byte, length:16, ~length:16, bytes
 *   fixed   = symbols                                  dynamic = code lengths, symbols
 *   symbols = (literal | length extra distance extra)* end-of-block
 *
 * Why not a library: what is valid must be what the JDK's zlib says, or a batch gets in that no
 * Java consumer can read. isa-l takes incomplete codes and libdeflate takes the unused half of a
 * one-symbol code; both are faster than zlib, neither agrees with it. docs/dependencies.md has
 * figures of this one next to them.
 *
 * A table entry: bits 0-7   how many bits to drop (code and extra bits together)
 *                bits 8-9   how many literals (1 or 2); 0: no literal
 *                bits 10-13 bits of the code alone (of a subtable's index in a pointer; of the first of two literals)
 *                bit 14     pointer to a subtable     bit 15  no length or distance: pointer, end of block or invalid
 *                bits 16-31 literals, base value, start of the subtable, or END/INVALID
 */
#include "inflate.h"
#include <string.h>
#if defined(__x86_64__)
#include "../format/cpu_features.h"
#endif

enum { NO_BLOCK, STORED, CODED };
enum { LITERALS = 3 << 8, POINTER = 1 << 14, SPECIAL = 1 << 15 };
#define END_OF_BLOCK (SPECIAL | 0u << 16)
#define INVALID (SPECIAL | 1u << 16)
#define IS_END_OF_BLOCK(e) (((e) & ~0x3cffu) == END_OF_BLOCK)
enum { FAR = -1 };             /* not an end: there is input and space enough for coded_fast */
/* Packing two literals into an entry pays from so many bytes of input left, and once a block has
 * shown that it goes on. */
enum { PAIR_FROM = 12000, PAIR_AFTER = 256 };
enum { LONG_CODE = 7 }; /* bits */

static const uint16_t LENGTH_BASE[29] = {3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 23, 27, 31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258};
static const uint8_t LENGTH_EXTRA[29] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
static const uint16_t DISTANCE_BASE[30] = {1, 2, 3, 4, 5, 7, 9, 13, 17, 25, 33, 49, 65, 97, 129, 193, 257, 385, 513, 769, 1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577};
static const uint8_t DISTANCE_EXTRA[30] = {0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13};

static uint32_t LENGTH_SYMBOL[288], DISTANCE_SYMBOL[32], PRECODE_SYMBOL[19]; /* entries without their code's bits */
static uint32_t FIXED_LENGTHS[LENGTH_TABLE], FIXED_DISTANCES[DISTANCE_TABLE];
static int has_bmi2;

static inline uint32_t entry(uint32_t symbol, uint32_t code_bits)
{
    if (symbol & (LITERALS | SPECIAL)) return symbol | code_bits << 10 | code_bits;
    uint32_t extra = symbol & 0xff;
    return (symbol & 0xffff0000u) | code_bits << 10 | (code_bits + extra);
}

/* How many codes of each length; 0 if zlib takes the code. An incomplete code passes only where it
 * is one symbol of one bit, and never for the code lengths' own code. *left: how many codes of 15
 * bits are unused. */
static int check_code(const uint16_t *count, int one_symbol_passes, int *longest, int *left)
{
    int n = 15;
    while (n > 0 && count[n] == 0) n--;
    *longest = n;
    *left = 1;
    for (int length = 1; length <= 15; length++) {
        *left = 2 * *left - count[length];
        if (*left < 0) return -1;
    }
    return *left > 0 && n > 0 && (!one_symbol_passes || n > 1) ? -1 : 0;
}

/* A canonical code that check_code has taken, to table; of a single symbol's code the unused half
 * stays invalid. Returns the bits of the table's index: no more than the longest code has, because
 * a table costs its size. A stream may consist of codes, each for one symbol. */
static int build(uint32_t *table, int most_bits, const uint16_t *count, int longest, int left,
        const uint8_t *lengths, int n, const uint32_t *symbols, int one_symbol_passes)
{
    uint16_t start[17], sorted[288];
    int bits = longest < most_bits ? longest : most_bits;
    if (bits == 0) bits = 1;
    start[1] = 0;
    for (int length = 1; length < 15; length++) start[length + 1] = start[length] + count[length];
    int i = 0;
    for (uint64_t eight; i + 8 <= n; i += 8) {
        memcpy(&eight, lengths + i, 8);
        if (!eight) continue;
        for (int j = i; j < i + 8; j++)
            if (lengths[j]) sorted[start[lengths[j]]++] = (uint16_t)j;
    }
    for (; i < n; i++)
        if (lengths[i]) sorted[start[lengths[i]]++] = (uint16_t)i;
    if (left > 0) {
        /* no code at all: zlib waits for a symbol, and as the code lengths' own code it then reads zeros bit by bit */
        uint32_t used = longest ? entry(symbols[sorted[0]], 1) : one_symbol_passes ? INVALID | 1 : entry(symbols[0], 1);
        for (int i = 0; i < 1 << bits; i += 2) {
            table[i] = used;
            table[i + 1] = longest || one_symbol_passes ? INVALID | 1 : used;
        }
        return bits;
    }
    /* Codes stand in the stream with their first bit lowest, so the next code is a reversed increment: clear the
     * ones from the top down to the first zero, set that. The table doubles whenever codes get one
     * bit longer. */
    const uint16_t *next = sorted;
    uint32_t code = 0, filled = 2, length = 1;
    while (length <= (uint32_t)bits) {
        for (int i = count[length]; i > 0; i--) {
            table[code] = entry(symbols[*next++], length);
            uint32_t zeros = code ^ (filled - 1);
            if (zeros == 0) {
                for (; filled < 1u << bits; filled *= 2) memcpy(table + filled, table, filled * sizeof *table);
                return bits;
            }
            uint32_t bit = 1u << (31 - __builtin_clz(zeros));
            code = (code & (bit - 1)) | bit;
        }
        if (++length <= (uint32_t)bits) {
            memcpy(table + filled, table, filled * sizeof *table);
            filled *= 2;
        }
    }
    uint32_t end = 1u << bits, prefix = ~0u, sub = 0;
    int remaining = count[length];
    for (;;) {
        while (remaining == 0) remaining = count[++length];
        if ((code & ((1u << bits) - 1)) != prefix) {
            prefix = code & ((1u << bits) - 1);
            sub = end;
            uint32_t sub_bits = length - bits;
            for (uint32_t codes = remaining; codes < 1u << sub_bits;) {
                sub_bits++;
                codes = 2 * codes + count[bits + sub_bits];
            }
            end = sub + (1u << sub_bits);
            table[prefix] = SPECIAL | POINTER | sub << 16 | sub_bits << 10 | bits;
        }
        uint32_t e = entry(symbols[*next++], length - bits);
        for (uint32_t i = sub + (code >> bits); i < end; i += 1u << (length - bits)) table[i] = e;
        uint32_t zeros = code ^ ((1u << length) - 1);
        if (zeros == 0) return bits;
        uint32_t bit = 1u << (31 - __builtin_clz(zeros));
        code = (code & (bit - 1)) | bit;
        remaining--;
    }
}

/* A table whose index has all its bits: it repeats itself. */
static void enlarge(uint32_t *table, int bits, int most_bits)
{
    for (; bits < most_bits; bits++) memcpy(table + (1u << bits), table, sizeof *table << bits);
}

/* Two literals in one look-up, where both codes fit the index; from the top down, so that partners are still single. */
static void pair_literals(uint32_t *table, int bits)
{
    enlarge(table, bits, LENGTH_BITS);
    for (uint32_t i = (1u << LENGTH_BITS) - 1; i > 0; i--) {
        uint32_t first = table[i], first_bits = first & 0xff;
        if (!(first & LITERALS)) continue;
        uint32_t second = table[i >> first_bits];
        if (!(second & LITERALS) || first_bits + (second & 0xff) > LENGTH_BITS) continue;
        table[i] = (first_bits + (second & 0xff)) | 2u << 8 | first_bits << 10 | (first & 0xff0000u) | (second & 0xff0000u) << 8;
    }
}

void inflate_init(void)
{
    uint8_t lengths[288];
    for (int i = 0; i < 288; i++) {
        LENGTH_SYMBOL[i] = i < 256 ? 1u << 8 | (uint32_t)i << 16 : i == 256 ? END_OF_BLOCK
                         : i < 286 ? (uint32_t)LENGTH_BASE[i - 257] << 16 | LENGTH_EXTRA[i - 257] : INVALID;
        lengths[i] = i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8;
    }
    for (int i = 0; i < 32; i++)
        DISTANCE_SYMBOL[i] = i < 30 ? (uint32_t)DISTANCE_BASE[i] << 16 | DISTANCE_EXTRA[i] : INVALID;
    for (int i = 0; i < 19; i++) PRECODE_SYMBOL[i] = (uint32_t)i << 16;
    const uint16_t lengths_count[16] = {[7] = 24, [8] = 152, [9] = 112};
    const uint16_t distances_count[16] = {[5] = 32};
    int index_bits = build(FIXED_LENGTHS, LENGTH_BITS, lengths_count, 9, 0, lengths, 288,
            LENGTH_SYMBOL, 1);
    enlarge(FIXED_LENGTHS, index_bits, LENGTH_BITS);
    memset(lengths, 5, 32);
    index_bits = build(FIXED_DISTANCES, DISTANCE_BITS, distances_count, 5, 0, lengths, 32,
            DISTANCE_SYMBOL, 1);
    enlarge(FIXED_DISTANCES, index_bits, DISTANCE_BITS);
#if defined(__x86_64__)
    has_bmi2 = (cpu_features() & CPU_BMI2) != 0;
#endif
}

void inflate_start(Inflate *s, const uint8_t *in, const uint8_t *in_end)
{
    s->in = in;
    s->in_end = in_end;
    s->bits = 0;
    s->bit_count = 0;
    s->block = NO_BLOCK;
    s->last_block = 0;
    s->stored_left = s->match_left = s->distance = 0;
    s->produced = 0;
}

static inline uint64_t load64(const uint8_t *p) { uint64_t v; memcpy(&v, p, 8); return v; }

/* at least 56 bits, or all that there are */
static inline void refill(Inflate *s)
{
    if (s->in_end - s->in >= 8) {
        s->bits |= load64(s->in) << s->bit_count;
        s->in += (63 - s->bit_count) >> 3;
        s->bit_count |= 56;
        return;
    }
    while (s->bit_count < 56 && s->in < s->in_end) {
        s->bits |= (uint64_t)*s->in++ << s->bit_count;
        s->bit_count += 8;
    }
}

static inline void drop(Inflate *s, int n)
{
    s->bits >>= n;
    s->bit_count -= n;
}

static inline uint32_t take(Inflate *s, int n)
{
    uint32_t v = (uint32_t)(s->bits & ((1u << n) - 1));
    drop(s, n);
    return v;
}

/* back to whole bytes: the ones that were loaded and not used belong to the input again */
static void align(Inflate *s)
{
    drop(s, s->bit_count & 7);
    s->in -= s->bit_count >> 3;
    s->bits = 0;
    s->bit_count = 0;
}

/* Is the next symbol the end of the block? Then no table need be built. `rank`: how many codes as
 * long come before its. */
static int ends_at_once(Inflate *s, const uint16_t *count, int length, uint32_t rank)
{
    uint32_t code = 0, reversed = 0;
    if (s->bit_count < length) refill(s);
    if (s->bit_count < length) return 0;
    for (int i = 1; i <= length; i++) code = (code + (i > 1 ? count[i - 1] : 0)) << 1;
    code += rank;
    for (int i = 0; i < length; i++) reversed |= (code >> i & 1) << (length - 1 - i);
    if ((s->bits & ((1u << length) - 1)) != reversed) return 0;
    drop(s, length);
    return 1;
}

/* INFLATE_DONE: s->block says whether a symbol follows */
static int dynamic_header(Inflate *s)
{
    static const uint8_t ORDER[19] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};
    uint8_t lengths[320], precode_lengths[24] = {0};
    uint16_t precode_count[16] = {0}, counts[2][16] = {{0}}; /* of lengths, of distances */
    uint32_t precode[1 << PRECODE_BITS], rank = 0;
    int longest, left, distance_longest, distance_left;
    refill(s);
    if (s->bit_count < 14) return INFLATE_SHORT;
    int n_lengths = (int)take(s, 5) + 257, n_distances = (int)take(s, 5) + 1, n_precode = (int)take(s, 4) + 4;
    if (n_lengths > 286 || n_distances > 30) return INFLATE_BAD;
    for (int i = 0; i < n_precode; i++) {
        if (s->bit_count < 3) refill(s);
        if (s->bit_count < 3) return INFLATE_SHORT;
        uint32_t length = take(s, 3);
        precode_lengths[ORDER[i]] = (uint8_t)length;
        precode_count[length]++;
    }
    precode_count[0] = 0;
    if (check_code(precode_count, 0, &longest, &left)) return INFLATE_BAD;
    /* zlib takes each length for a 0 of one bit, and minds only then that the end of block has no
     * code */
    if (!longest)
        return s->bit_count + 8 * (s->in_end - s->in) < n_lengths + n_distances ? INFLATE_SHORT : INFLATE_BAD;
    const int precode_bits = build(precode, PRECODE_BITS, precode_count, longest, left,
            precode_lengths, 19, PRECODE_SYMBOL, 0);
    uint32_t precode_mask = (1u << precode_bits) - 1;
    for (int have = 0; have < n_lengths + n_distances;) {
        if (s->bit_count < 14) refill(s);
        uint32_t e = precode[s->bits & precode_mask];
        int code_bits = e & 0xff, symbol = e >> 16, repeat = 1;
        if (symbol < 16) {
            if (s->bit_count < code_bits) return INFLATE_SHORT;
            drop(s, code_bits);
            lengths[have] = (uint8_t)symbol;
        } else {
            int extra = symbol == 16 ? 2 : symbol == 17 ? 3 : 7;
            if (s->bit_count < code_bits + extra) return INFLATE_SHORT;
            drop(s, code_bits);
            if (symbol == 16 && have == 0) return INFLATE_BAD;
            repeat = (int)take(s, extra) + (symbol == 18 ? 11 : 3);
            if (repeat > n_lengths + n_distances - have) return INFLATE_BAD;
            symbol = symbol == 16 ? lengths[have - 1] : 0;
            memset(lengths + have, symbol, (size_t)repeat);
        }
        if (have <= 256 && have + repeat > 256) rank = counts[0][symbol] + 256u - (uint32_t)have;
        if (have < n_lengths && have + repeat > n_lengths) {
            counts[0][symbol] += (uint16_t)(n_lengths - have);
            counts[1][symbol] += (uint16_t)(have + repeat - n_lengths);
        } else {
            counts[have >= n_lengths][symbol] += (uint16_t)repeat;
        }
        have += repeat;
    }
    counts[0][0] = counts[1][0] = 0;
    if (lengths[256] == 0) return INFLATE_BAD;
    if (check_code(counts[0], 1, &longest, &left)) return INFLATE_BAD;
    if (check_code(counts[1], 1, &distance_longest, &distance_left)) return INFLATE_BAD;
    if (ends_at_once(s, counts[0], lengths[256], rank)) {
        s->block = NO_BLOCK;
        return INFLATE_DONE;
    }
    s->length_bits = build(s->length_table, LENGTH_BITS, counts[0], longest, left, lengths,
            n_lengths, LENGTH_SYMBOL, 1);
    s->distance_bits = build(s->distance_table, DISTANCE_BITS, counts[1], distance_longest,
            distance_left, lengths + n_lengths, n_distances, DISTANCE_SYMBOL, 1);
    /* it takes input to describe long codes: whole tables are worth it */
    if (s->length_bits >= LONG_CODE) {
        enlarge(s->length_table, s->length_bits, LENGTH_BITS);
        enlarge(s->distance_table, s->distance_bits, DISTANCE_BITS);
        if (s->length_bits < LENGTH_BITS) s->length_bits = LENGTH_BITS;
        if (s->distance_bits < DISTANCE_BITS) s->distance_bits = DISTANCE_BITS;
    }
    s->pair_at = s->in_end - s->in >= PAIR_FROM ? s->in + PAIR_AFTER : NULL;
    s->lengths = s->length_table;
    s->distances = s->distance_table;
    s->block = CODED;
    return INFLATE_DONE;
}

static int open_block(Inflate *s)
{
    refill(s);
    if (s->bit_count < 3) return INFLATE_SHORT;
    s->last_block = (int)take(s, 1);
    switch (take(s, 2)) {
    case 0: {
        align(s);
        if (s->in_end - s->in < 4) return INFLATE_SHORT;
        uint32_t length = s->in[0] | (uint32_t)s->in[1] << 8, check = s->in[2] | (uint32_t)s->in[3] << 8;
        if (length != (check ^ 0xffff)) return INFLATE_BAD;
        s->in += 4;
        s->stored_left = length;
        s->block = STORED;
        return INFLATE_DONE;
    }
    case 1:
        s->lengths = FIXED_LENGTHS;
        s->distances = FIXED_DISTANCES;
        s->length_bits = LENGTH_BITS;
        s->distance_bits = DISTANCE_BITS;
        s->pair_at = NULL;
        s->block = CODED;
        return INFLATE_DONE;
    case 2:
        return dynamic_header(s);
    default: return INFLATE_BAD;
    }
}

/* where the input stands, to go back to when it turns out too short */
typedef struct { const uint8_t *in; uint64_t bits; int bit_count; } Mark;

static inline Mark mark(const Inflate *s) { return (Mark){s->in, s->bits, s->bit_count}; }

static inline int go_back(Inflate *s, Mark m)
{
    s->in = m.in;
    s->bits = m.bits;
    s->bit_count = m.bit_count;
    return INFLATE_SHORT;
}

static int block_header(Inflate *s)
{
    Mark before = mark(s);
    int status = open_block(s);
    if (status == INFLATE_SHORT) {
        s->last_block = 0;
        return go_back(s, before);
    }
    return status;
}

static int stored(Inflate *s, uint8_t *window, size_t *at, size_t end)
{
    size_t n = s->stored_left, have = (size_t)(s->in_end - s->in);
    int status = INFLATE_DONE;
    if (n > have) { n = have; status = INFLATE_SHORT; }
    if (n > end - *at) { n = end - *at; status = INFLATE_FULL; }
    memcpy(window + *at, s->in, n);
    s->in += n;
    *at += n;
    s->produced += n;
    s->stored_left -= (uint32_t)n;
    if (s->stored_left == 0) s->block = NO_BLOCK;
    return status;
}

/* byte by byte: near the window's end, and where a match overlaps itself closely */
static inline void copy_match(uint8_t *to, uint32_t distance, size_t n)
{
    for (const uint8_t *from = to - distance; n; n--) *to++ = *from++;
}

static int finish_match(Inflate *s, uint8_t *window, size_t *at, size_t end)
{
    size_t n = s->match_left < end - *at ? s->match_left : end - *at;
    copy_match(window + *at, s->distance, n);
    *at += n;
    s->produced += n;
    s->match_left -= (uint32_t)n;
    return s->match_left ? INFLATE_FULL : INFLATE_DONE;
}

#define WHOLE(e) ((uint64_t)1 << ((e) & 0xff))
#define VALUE(e, bits) (((e) >> 16) + (uint32_t)(((bits) & (WHOLE(e) - 1)) >> ((e) >> 10 & 15)))

/* Far from both ends nothing is asked but the codes themselves: an iteration takes at most 22 bytes
 * of input and writes at most 6 literals and one match, which may spill 31 bytes. Returns FAR when
 * it has come near one. */
static inline __attribute__((always_inline)) int coded_fast(Inflate *s, uint8_t *window, size_t *at,
        size_t end, int length_bits, int distance_bits)
{
    const uint32_t *lengths = s->lengths, *distances = s->distances;
    const uint32_t length_mask = (1u << length_bits) - 1, distance_mask = (1u << distance_bits) - 1;
    /* PAIR_FROM is far from the end */
    const uint8_t *in = s->in, *in_safe = s->pair_at ? s->pair_at : s->in_end - 32;
    uint8_t *out = window + *at, *out_safe = window + end - 320;
    const uint8_t *oldest = out - (s->produced < INFLATE_HISTORY ? s->produced : INFLATE_HISTORY);
    const uint8_t *begin = out;
    uint64_t bits = s->bits, before;
    uint32_t count = (uint32_t)s->bit_count, e, length, distance;
    int status = FAR;
#define REFILL() (bits |= load64(in) << count, in += (63 - count) >> 3, count |= 56)
#define DROP(e) (bits >>= ((e) & 0xff), count -= ((e) & 0xff))
#define LITERAL(e) (out[0] = (uint8_t)((e) >> 16), out[1] = (uint8_t)((e) >> 24), out += (e) >> 8 & 3)
    REFILL();
    e = lengths[bits & length_mask];
    do {
        if (e & LITERALS) {
            DROP(e); LITERAL(e);
            e = lengths[bits & length_mask];
            if (e & LITERALS) {
                DROP(e); LITERAL(e);
                e = lengths[bits & length_mask];
                if (e & LITERALS) {
                    DROP(e); LITERAL(e);
                    REFILL();
                    e = lengths[bits & length_mask];
                    continue;
                }
            }
        }
        if (__builtin_expect(e & SPECIAL, 0)) {
            if (e & POINTER) {
                DROP(e);
                e = lengths[(e >> 16) + (bits & ((1u << (e >> 10 & 15)) - 1))];
                if (e & LITERALS) {
                    DROP(e); LITERAL(e);
                    REFILL();
                    e = lengths[bits & length_mask];
                    continue;
                }
            }
            if (e & SPECIAL) {
                DROP(e);
                status = IS_END_OF_BLOCK(e) ? INFLATE_DONE : INFLATE_BAD;
                break;
            }
        }
        before = bits;
        DROP(e);
        length = VALUE(e, before);
        REFILL();
        e = distances[bits & distance_mask];
        if (__builtin_expect(e & SPECIAL, 0)) {
            if (e & POINTER) {
                DROP(e);
                e = distances[(e >> 16) + (bits & ((1u << (e >> 10 & 15)) - 1))];
            }
            if (e & SPECIAL) { status = INFLATE_BAD; break; }
        }
        before = bits;
        DROP(e);
        distance = VALUE(e, before);
        if (__builtin_expect(distance > (size_t)(out - oldest), 0)) { status = INFLATE_BAD; break; }
        REFILL();
        e = lengths[bits & length_mask];
        uint8_t *to = out;
        const uint8_t *from = out - distance;
        out += length;
        if (__builtin_expect(distance >= 8, 1)) {
            do {
                memcpy(to, from, 8);
                memcpy(to + 8, from + 8, 8);
                to += 16;
                from += 16;
            } while (to < out);
        } else if (distance == 1) {
            memset(to, *from, length);
        } else {
            copy_match(to, distance, length);
        }
    } while (in < in_safe && out < out_safe);
#undef REFILL
#undef DROP
#undef LITERAL
    s->in = in;
    s->bits = count < 64 ? bits & (((uint64_t)1 << count) - 1) : bits;
    s->bit_count = (int)count;
    s->produced += (uint64_t)(out - begin);
    *at += (size_t)(out - begin);
    return status;
}

#if defined(__x86_64__)
__attribute__((target("bmi,bmi2")))
static int coded_fast_bmi2(Inflate *s, uint8_t *window, size_t *at, size_t end)
{
    return coded_fast(s, window, at, end, LENGTH_BITS, DISTANCE_BITS);
}
#endif
static int coded_fast_plain(Inflate *s, uint8_t *window, size_t *at, size_t end)
{
    return coded_fast(s, window, at, end, LENGTH_BITS, DISTANCE_BITS);
}

/* tables smaller than the largest: masks that are constants save the ordinary block 3 % */
static int coded_fast_small(Inflate *s, uint8_t *window, size_t *at, size_t end)
{
    return coded_fast(s, window, at, end, s->length_bits, s->distance_bits);
}

static inline int coded_far_from_ends(Inflate *s, uint8_t *window, size_t *at, size_t end)
{
    if (s->length_bits != LENGTH_BITS || s->distance_bits != DISTANCE_BITS)
        return coded_fast_small(s, window, at, end);
#if defined(__x86_64__)
    if (has_bmi2) return coded_fast_bmi2(s, window, at, end);
#endif
    return coded_fast_plain(s, window, at, end);
}

/* the entry that the bits select, through a subtable if need be; *outer: the index bits to drop before its own */
static inline uint32_t select(const Inflate *s, const uint32_t *table, uint32_t mask,
        int index_bits, int *outer)
{
    uint32_t e = table[s->bits & mask];
    *outer = 0;
    if ((e & (SPECIAL | POINTER)) == (SPECIAL | POINTER)) {
        *outer = index_bits;
        e = table[(e >> 16) + ((s->bits >> index_bits) & ((1u << (e >> 10 & 15)) - 1))];
    }
    return e;
}

/* near an end: each symbol only if all its bits are there, each byte only if there is space */
static int coded_near_an_end(Inflate *s, uint8_t *window, size_t *at, size_t end)
{
    const uint32_t *lengths = s->lengths, *distances = s->distances;
    const int length_bits = s->length_bits, distance_bits = s->distance_bits;
    const uint32_t length_mask = (1u << length_bits) - 1, distance_mask = (1u << distance_bits) - 1;
    int outer;
    for (;;) {
        if (s->in_end - s->in > 32 && end - *at > 320) return FAR;
        refill(s);
        uint32_t e = select(s, lengths, length_mask, length_bits, &outer);
        if ((e & LITERALS) == 2 << 8) e = (e & 0xff0000u) | 1u << 8 | (e >> 10 & 15); /* one at a time here */
        if (s->bit_count < outer + (int)(e & 0xff)) return INFLATE_SHORT;
        if (e & LITERALS) {
            if (*at == end) return INFLATE_FULL;
            drop(s, outer + (int)(e & 0xff));
            window[(*at)++] = (uint8_t)(e >> 16);
            s->produced++;
            continue;
        }
        Mark before = mark(s);
        drop(s, outer);
        if (e & SPECIAL) {
            drop(s, (int)(e & 0xff));
            return IS_END_OF_BLOCK(e) ? INFLATE_DONE : INFLATE_BAD;
        }
        uint32_t length = VALUE(e, s->bits);
        drop(s, (int)(e & 0xff));
        refill(s);
        e = select(s, distances, distance_mask, distance_bits, &outer);
        if (s->bit_count < outer + (int)(e & 0xff)) return go_back(s, before);
        if (e & SPECIAL) return INFLATE_BAD;
        drop(s, outer);
        s->distance = VALUE(e, s->bits);
        drop(s, (int)(e & 0xff));
        if (s->distance > s->produced) return INFLATE_BAD;
        s->match_left = length;
        if (finish_match(s, window, at, end) == INFLATE_FULL) return INFLATE_FULL;
    }
}

int inflate_run(Inflate *s, uint8_t *window, size_t *at, size_t end)
{
    int status = INFLATE_DONE;
    for (;;) {
        if (s->match_left && finish_match(s, window, at, end) == INFLATE_FULL) return INFLATE_FULL;
        switch (s->block) {
        case NO_BLOCK:
            if (s->last_block) {
                align(s);
                return INFLATE_DONE;
            }
            status = block_header(s);
            break;
        case STORED:
            status = stored(s, window, at, end);
            break;
        default:
            if (s->pair_at && s->in >= s->pair_at) {
                pair_literals(s->length_table, s->length_bits);
                enlarge(s->distance_table, s->distance_bits, DISTANCE_BITS);
                s->length_bits = LENGTH_BITS;
                s->distance_bits = DISTANCE_BITS;
                s->pair_at = NULL;
            }
            status = s->in_end - s->in > 32 && end - *at > 320 ? coded_far_from_ends(s, window, at, end) : FAR;
            if (status == FAR && s->pair_at && s->in >= s->pair_at) continue;
            if (status == FAR) status = coded_near_an_end(s, window, at, end);
            if (status == FAR) status = INFLATE_DONE;
            else if (status == INFLATE_DONE) s->block = NO_BLOCK;
        }
        if (status != INFLATE_DONE) return status;
    }
}
