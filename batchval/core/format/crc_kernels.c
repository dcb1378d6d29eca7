/* Checksums, bytes to number.
 *
 *   table      slice-by-8, any processor
 *   sse42      x86-64: crc32q on three streams, joined by carry-less multiplication
 *   fusion     x86-64: 128-bit folding and three crc32q streams at once, an execution port for each
 *   fold512    x86-64: VPCLMULQDQ, which folds four times 512 bits
 *   armv8-crc  ARM64 without PMULL (Cortex-A72 of a Raspberry Pi 4): crc32cx on one stream
 *   armv8      ARM64: crc32cx on three streams, joined by carry-less multiplication (PMULL)
 *
 * sse42 and armv8 are the same C: crc_primitives.h names the instructions of both.
 *
 * All bit strings are reflected, as CRC-32C and CRC-32 define them: bit 0 of a byte is the highest
 * power. x^n stands for "x^n modulo the polynomial", a reflected 32-bit number.
 */
#include "crc_kernels.h"
#include "crc_primitives.h"

static const uint32_t POLYNOMIAL[POLYNOMIALS] = {0x82F63B78u, 0xEDB88320u};

static uint32_t TABLE_C[8][256], TABLE_IEEE[8][256];
static uint32_t POWER[POLYNOMIALS][64]; /* x^(8 * 2^k): moves a crc over 2^k bytes */
static int chosen = CRC_TABLE;

/* a * b modulo the polynomial */
static uint32_t multiply(int poly, uint32_t a, uint32_t b)
{
    uint32_t product = 0;
    for (int i = 0; i < 32; i++) {
        product ^= b & -(a >> 31);
        a <<= 1;
        b = (b >> 1) ^ (POLYNOMIAL[poly] & -(b & 1));
    }
    return product;
}

static uint32_t x_to_the(int poly, uint64_t n)
{
    uint32_t result = 0x80000000u, square = 0x40000000u;
    for (; n; n >>= 1) {
        if (n & 1) result = multiply(poly, result, square);
        square = multiply(poly, square, square);
    }
    return result;
}

static void fill_table(int poly, uint32_t table[8][256])
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int bit = 0; bit < 8; bit++) c = (c >> 1) ^ (POLYNOMIAL[poly] & -(c & 1));
        table[0][i] = c;
    }
    for (int i = 0; i < 256; i++)
        for (int s = 1; s < 8; s++)
            table[s][i] = table[0][table[s - 1][i] & 255] ^ (table[s - 1][i] >> 8);
}

/* c is the raw register (not inverted) here and in the kernels below */
static uint32_t by_table(const uint32_t t[8][256], uint32_t c, const uint8_t *p, size_t n)
{
    for (; n >= 8; p += 8, n -= 8) {
        uint32_t lo = c ^ (p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
        c = t[7][lo & 255] ^ t[6][lo >> 8 & 255] ^ t[5][lo >> 16 & 255] ^ t[4][lo >> 24]
          ^ t[3][p[4]] ^ t[2][p[5]] ^ t[1][p[6]] ^ t[0][p[7]];
    }
    for (; n; p++, n--) c = t[0][(c ^ *p) & 255] ^ (c >> 8);
    return c;
}

#if HAVE_STEPS
enum { MAX_ROUND_WORDS = 128 };      /* 64-bit words one of three streams takes in a round */
enum { MIN_STREAMS_BYTES = 72 };                      /* bytes */
/* x^(64w - 33), x^(128w - 33): move a crc over w words and over 2w */
static uint32_t JOIN[POLYNOMIALS][MAX_ROUND_WORDS + 1][2];
static uint32_t POWER_33[POLYNOMIALS][64];            /* x^(8 * 2^k - 33), for multiply_hw */
static int has_streams;

/* a * x^33 * k: a crc step of the 63-bit product adds the x^33, so constants carry x^-33 */
CRC_CLMUL INLINE uint32_t multiply_hw(int poly, uint32_t a, uint32_t k)
{
    return (uint32_t)step64(poly, 0, clmul32(a, k));
}

CRC INLINE uint32_t one_stream(int poly, uint32_t crc, const uint8_t *p, size_t n)
{
    crc_register c = crc;
    for (; n >= 8; p += 8, n -= 8) c = step64(poly, c, load64(p));
    crc = (uint32_t)c;
    if (n & 4) { crc = step32(poly, crc, load32(p)); p += 4; }
    if (n & 2) { crc = step16(poly, crc, load16(p)); p += 2; }
    if (n & 1) crc = step8(poly, crc, *p);
    return crc;
}

/* A crc step takes 3 cycles and one can start in each: three streams of w words run at once. */
CRC_CLMUL INLINE uint32_t three_streams(int poly, uint32_t crc, const uint8_t *p, size_t n)
{
    while (n >= MIN_STREAMS_BYTES) {
        size_t w = n / 24 < MAX_ROUND_WORDS ? n / 24 : MAX_ROUND_WORDS, bytes = 8 * w;
        crc_register a = crc, b = 0, c = 0;
        for (size_t i = 0; i < bytes; i += 8) {
            a = step64(poly, a, load64(p + i));
            b = step64(poly, b, load64(p + bytes + i));
            c = step64(poly, c, load64(p + 2 * bytes + i));
        }
        const uint32_t *join = JOIN[poly][w];
        a = multiply_hw(poly, (uint32_t)a, join[1]);
        b = multiply_hw(poly, (uint32_t)b, join[0]);
        crc = (uint32_t)(a ^ b ^ c);
        p += 3 * bytes;
        n -= 3 * bytes;
    }
    return one_stream(poly, crc, p, n);
}

CRC_CLMUL static uint32_t by_streams(uint32_t crc, const uint8_t *p, size_t n)
{
    return three_streams(CASTAGNOLI, crc, p, n);
}

CRC_CLMUL INLINE uint32_t shift_hw(int poly, uint32_t crc, uint64_t n)
{
    for (; n; n &= n - 1) crc = multiply_hw(poly, crc, POWER_33[poly][__builtin_ctzll(n)]);
    return crc;
}

CRC_CLMUL static uint32_t shift_by_clmul(uint32_t crc, uint64_t n)
{
    return shift_hw(CASTAGNOLI, crc, n);
}

static void fill_joins(int poly)
{
    static const uint64_t ORDER[POLYNOMIALS] = {0x7fffffff, 0xffffffff}; /* x^order = 1 */
    uint32_t word = x_to_the(poly, 64), two_words = x_to_the(poly, 128);
    JOIN[poly][1][0] = x_to_the(poly, 64 - 33);
    JOIN[poly][1][1] = x_to_the(poly, 128 - 33);
    for (int w = 2; w <= MAX_ROUND_WORDS; w++) {
        JOIN[poly][w][0] = multiply(poly, JOIN[poly][w - 1][0], word);
        JOIN[poly][w][1] = multiply(poly, JOIN[poly][w - 1][1], two_words);
    }
    uint64_t exponent = 8;
    for (int k = 0; k < 64; k++, exponent = exponent * 2 % ORDER[poly])
        POWER_33[poly][k] = x_to_the(poly, (exponent + ORDER[poly] - 33) % ORDER[poly]);
}
#endif

#if HAVE_ARM
CRC static uint32_t by_one_stream(uint32_t crc, const uint8_t *p, size_t n)
{
    return one_stream(CASTAGNOLI, crc, p, n);
}

CRC static uint32_t ieee_by_one_stream(uint32_t crc, const uint8_t *p, size_t n)
{
    return one_stream(IEEE, crc, p, n);
}

CRC_CLMUL static uint32_t ieee_by_streams(uint32_t crc, const uint8_t *p, size_t n)
{
    return three_streams(IEEE, crc, p, n);
}

CRC_CLMUL static uint32_t ieee_shift_by_clmul(uint32_t crc, uint64_t n)
{
    return shift_hw(IEEE, crc, n);
}

static void init_arm(void)
{
    find_features();
    has_streams = has_crc && has_clmul;
    fill_joins(CASTAGNOLI);
    fill_joins(IEEE);
    chosen = has_streams ? CRC_ARMV8 : has_crc ? CRC_ARMV8_CRC : CRC_TABLE;
}
#endif

#if HAVE_X86
#define AVX __attribute__((target("avx512f,avx512vl,avx512dq,vpclmulqdq,pclmul," SSE42)))

enum { FOLD512_MIN_BYTES = 256 }; /* bytes */
/* factors of the low and the high 64 bits, over 64, 256 and 16 bytes */
static uint64_t FOLD[POLYNOMIALS][3][2];
static int has_avx;

CRC_CLMUL static inline __m128i fold(__m128i a, __m128i k, __m128i next)
{
    __m128i low = _mm_clmulepi64_si128(a, k, 0x00), high = _mm_clmulepi64_si128(a, k, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

CRC_CLMUL static inline __m128i load128(const uint8_t *p)
{
    return _mm_loadu_si128((const __m128i *)p);
}

CRC_CLMUL static inline __m128i factors(const uint64_t k[2])
{
    return _mm_set_epi64x((int64_t)k[1], (int64_t)k[0]);
}

/* The 16 bytes of a fold, reduced to a crc register. */
CRC_CLMUL static inline uint32_t reduced(__m128i x)
{
    crc_register low = step64(CASTAGNOLI, 0, (uint64_t)_mm_cvtsi128_si64(x));
    return (uint32_t)step64(CASTAGNOLI, low, (uint64_t)_mm_extract_epi64(x, 1));
}

/* Folding keeps one port busy, crc32q another: 64 bytes on four vectors and 72 on three streams in
 * the same ~9 cycles.
 * Layout of the rounds * 136 bytes: the vectors' 64-byte parts first, then three equal runs of 24
 * bytes a round. */
CRC_CLMUL static uint32_t by_fusion(uint32_t crc, const uint8_t *p, size_t n)
{
    if (n < 2560) return by_streams(crc, p, n);
    size_t rounds = n / 136, run = 24 * rounds;
    const uint8_t *a = p + 64 * rounds, *b = a + run, *c = b + run, *end = c + run;
    size_t rest = n - 136 * rounds;
    uint64_t ca = 0, cb = 0, cc = 0;
    __m128i k64 = factors(FOLD[CASTAGNOLI][0]), k16 = factors(FOLD[CASTAGNOLI][2]);
    __m128i x0 = _mm_xor_si128(load128(p), _mm_cvtsi32_si128((int)crc));
    __m128i x1 = load128(p + 16), x2 = load128(p + 32), x3 = load128(p + 48);
    for (size_t left = rounds;;) {
        for (int i = 0; i < 24; i += 8) {
            ca = step64(CASTAGNOLI, ca, load64(a + i));
            cb = step64(CASTAGNOLI, cb, load64(b + i));
            cc = step64(CASTAGNOLI, cc, load64(c + i));
        }
        if (--left == 0) break;
        a += 24; b += 24; c += 24; p += 64;
        x0 = fold(x0, k64, load128(p)); x1 = fold(x1, k64, load128(p + 16));
        x2 = fold(x2, k64, load128(p + 32)); x3 = fold(x3, k64, load128(p + 48));
    }
    x3 = fold(fold(fold(x0, k16, x1), k16, x2), k16, x3);
    crc = shift_by_clmul(reduced(x3), run) ^ (uint32_t)ca;
    crc = shift_by_clmul(crc, run) ^ (uint32_t)cb;
    crc = shift_by_clmul(crc, run) ^ (uint32_t)cc;
    return by_streams(crc, end, rest);
}

#ifdef EMULATE_VPCLMULQDQ /* lets the arithmetic be tested on a processor with AVX-512 that lacks the instruction */
#undef AVX
#define AVX __attribute__((target("avx512f,avx512vl,avx512dq,pclmul," SSE42)))
#define CLMUL512(a, k, which) _mm512_inserti32x4(_mm512_inserti32x4(_mm512_inserti32x4(_mm512_castsi128_si512( \
    _mm_clmulepi64_si128(_mm512_extracti32x4_epi32(a, 0), _mm512_extracti32x4_epi32(k, 0), which)), \
    _mm_clmulepi64_si128(_mm512_extracti32x4_epi32(a, 1), _mm512_extracti32x4_epi32(k, 1), which), 1), \
    _mm_clmulepi64_si128(_mm512_extracti32x4_epi32(a, 2), _mm512_extracti32x4_epi32(k, 2), which), 2), \
    _mm_clmulepi64_si128(_mm512_extracti32x4_epi32(a, 3), _mm512_extracti32x4_epi32(k, 3), which), 3)
#else
#define CLMUL512(a, k, which) _mm512_clmulepi64_epi128(a, k, which)
#endif

AVX static inline __m512i fold512(__m512i a, __m512i k, __m512i next)
{
    return _mm512_ternarylogic_epi64(CLMUL512(a, k, 0x00), CLMUL512(a, k, 0x11), next, 0x96);
}

/* At least 256 bytes, folded to 16; the last n % 64 bytes are left, from *at on. */
AVX static inline __m128i folded512(int poly, uint32_t crc, const uint8_t **at, size_t *left)
{
    const uint8_t *p = *at;
    size_t n = *left;
    __m512i x0 = _mm512_loadu_si512(p), x1 = _mm512_loadu_si512(p + 64), x2 = _mm512_loadu_si512(p + 128), x3 = _mm512_loadu_si512(p + 192);
    x0 = _mm512_xor_si512(x0, _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)crc)));
    __m512i k = _mm512_broadcast_i32x4(factors(FOLD[poly][1]));
    for (p += 256, n -= 256; n >= 256; p += 256, n -= 256) {
        x0 = fold512(x0, k, _mm512_loadu_si512(p)); x1 = fold512(x1, k, _mm512_loadu_si512(p + 64));
        x2 = fold512(x2, k, _mm512_loadu_si512(p + 128)); x3 = fold512(x3, k, _mm512_loadu_si512(p + 192));
    }
    k = _mm512_broadcast_i32x4(factors(FOLD[poly][0]));
    x0 = fold512(fold512(fold512(x0, k, x1), k, x2), k, x3);
    for (; n >= 64; p += 64, n -= 64) x0 = fold512(x0, k, _mm512_loadu_si512(p));
    *at = p;
    *left = n;
    __m128i k16 = factors(FOLD[poly][2]), last = _mm512_castsi512_si128(x0);
    last = fold(last, k16, _mm512_extracti32x4_epi32(x0, 1));
    last = fold(last, k16, _mm512_extracti32x4_epi32(x0, 2));
    return fold(last, k16, _mm512_extracti32x4_epi32(x0, 3));
}

AVX static uint32_t by_fold512(uint32_t crc, const uint8_t *p, size_t n)
{
    if (n < FOLD512_MIN_BYTES) return by_streams(crc, p, n);
    __m128i last = folded512(CASTAGNOLI, crc, &p, &n);
    return one_stream(CASTAGNOLI, reduced(last), p, n);
}

/* x86 lacks a crc32 instruction for IEEE's polynomial: after the folds down to 16 bytes the table
 * takes these and the rest. */
CRC_CLMUL static inline uint32_t ieee_reduced(__m128i x, const uint8_t *p, size_t n)
{
    __m128i k16 = factors(FOLD[IEEE][2]);
    for (; n >= 16; p += 16, n -= 16) x = fold(x, k16, load128(p));
    uint8_t last[16];
    _mm_storeu_si128((__m128i *)last, x);
    return by_table(TABLE_IEEE, by_table(TABLE_IEEE, 0, last, 16), p, n);
}

CRC_CLMUL static uint32_t ieee_by_folding(uint32_t crc, const uint8_t *p, size_t n)
{
    __m128i k64 = factors(FOLD[IEEE][0]), k16 = factors(FOLD[IEEE][2]);
    __m128i x0 = _mm_xor_si128(load128(p), _mm_cvtsi32_si128((int)crc));
    __m128i x1 = load128(p + 16), x2 = load128(p + 32), x3 = load128(p + 48);
    for (p += 64, n -= 64; n >= 64; p += 64, n -= 64) {
        x0 = fold(x0, k64, load128(p)); x1 = fold(x1, k64, load128(p + 16));
        x2 = fold(x2, k64, load128(p + 32)); x3 = fold(x3, k64, load128(p + 48));
    }
    return ieee_reduced(fold(fold(fold(x0, k16, x1), k16, x2), k16, x3), p, n);
}

AVX static uint32_t ieee_by_fold512(uint32_t crc, const uint8_t *p, size_t n)
{
    __m128i last = folded512(IEEE, crc, &p, &n);
    return ieee_reduced(last, p, n);
}

/* A 64-bit half that is moved over `bytes` bytes is multiplied by x^(8 bytes); the low half
 * stands 64 bits further left than the high one; the reflected 64 x 33 bit product costs 32 powers
 * and one bit more. */
static void fill_fold(int poly)
{
    static const int over[3] = {64, 256, 16};
    for (int i = 0; i < 3; i++) {
        FOLD[poly][i][0] = (uint64_t)x_to_the(poly, 8 * over[i] + 32) << 1;
        FOLD[poly][i][1] = (uint64_t)x_to_the(poly, 8 * over[i] - 32) << 1;
    }
}

static void init_x86(void)
{
    find_features();
    fill_joins(CASTAGNOLI);
    fill_fold(CASTAGNOLI);
    fill_fold(IEEE);
    has_streams = has_crc && has_clmul;
    has_avx = has_streams && (cpu_features() & CPU_AVX512) != 0;
#ifndef EMULATE_VPCLMULQDQ
    has_avx = has_avx && (cpu_features() & CPU_VPCLMULQDQ) != 0;
#endif
    chosen = has_avx ? CRC_FOLD512 : has_streams ? CRC_FUSION : CRC_TABLE;
}
#endif

void crc_init(void)
{
    if (TABLE_C[0][1]) return;
    fill_table(CASTAGNOLI, TABLE_C);
    fill_table(IEEE, TABLE_IEEE);
    for (int poly = 0; poly < POLYNOMIALS; poly++) {
        POWER[poly][0] = x_to_the(poly, 8);
        for (int k = 1; k < 64; k++)
            POWER[poly][k] = multiply(poly, POWER[poly][k - 1], POWER[poly][k - 1]);
    }
#if HAVE_X86
    init_x86();
#elif HAVE_ARM
    init_arm();
#endif
}

int crc_kernel(void) { return chosen; }

int crc_kernel_usable(int kernel)
{
#if HAVE_X86
    if (kernel == CRC_FOLD512) return has_avx;
    if (kernel == CRC_SSE42 || kernel == CRC_FUSION) return has_streams;
#elif HAVE_ARM
    if (kernel == CRC_ARMV8_CRC) return has_crc;
    if (kernel == CRC_ARMV8) return has_streams;
#endif
    return kernel == CRC_TABLE;
}

const char *crc_kernel_name(int kernel)
{
    static const char *const names[CRC_KERNELS] = {
        "table", "sse42", "fusion", "fold512", "armv8-crc", "armv8",
    };
    return kernel >= 0 && kernel < CRC_KERNELS ? names[kernel] : "unknown";
}

uint32_t crc32c_by(int kernel, uint32_t crc, const uint8_t *p, size_t n)
{
    switch (kernel) {
#if HAVE_X86
    case CRC_FOLD512: return ~by_fold512(~crc, p, n);
    case CRC_FUSION: return ~by_fusion(~crc, p, n);
    case CRC_SSE42: return ~by_streams(~crc, p, n);
#elif HAVE_ARM
    case CRC_ARMV8: return ~by_streams(~crc, p, n);
    case CRC_ARMV8_CRC: return ~by_one_stream(~crc, p, n);
#endif
    default: return ~by_table(TABLE_C, ~crc, p, n);
    }
}

uint32_t crc32c(uint32_t crc, const uint8_t *p, size_t n)
{
#if HAVE_X86
    /* every faster kernel hands these few bytes on to this one: the calls between cost as much as 40 bytes */
    if (n < FOLD512_MIN_BYTES && chosen != CRC_TABLE) return ~by_streams(~crc, p, n);
#endif
    return crc32c_by(chosen, crc, p, n);
}

uint32_t crc32_ieee(uint32_t crc, const uint8_t *p, size_t n)
{
#if HAVE_X86
    if (has_avx && n >= FOLD512_MIN_BYTES) return ~ieee_by_fold512(~crc, p, n);
    if (has_streams && n >= 64) return ~ieee_by_folding(~crc, p, n);
#elif HAVE_ARM
    if (has_streams) return ~ieee_by_streams(~crc, p, n);
    if (has_crc) return ~ieee_by_one_stream(~crc, p, n);
#endif
    return ~by_table(TABLE_IEEE, ~crc, p, n);
}

static uint32_t shift(int poly, uint32_t crc, uint64_t n)
{
    for (; n; n &= n - 1) crc = multiply(poly, crc, POWER[poly][__builtin_ctzll(n)]);
    return crc;
}

uint32_t crc32c_shift(uint32_t crc, uint64_t n)
{
#if HAVE_STEPS
    if (has_streams) return shift_by_clmul(crc, n);
#endif
    return shift(CASTAGNOLI, crc, n);
}

uint32_t crc32_ieee_shift(uint32_t crc, uint64_t n)
{
#if HAVE_IEEE_STEPS
    if (has_streams) return ieee_shift_by_clmul(crc, n);
#endif
    return shift(IEEE, crc, n);
}
