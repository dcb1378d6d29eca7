/* Checksums, bytes to number.
 *
 *   table    slice-by-8, any processor
 *   sse42    crc32q on three streams, joined by carry-less multiplication
 *   fusion   four 128-bit folding lanes beside three crc32q streams: both execution ports at once
 *   fold512  VPCLMULQDQ, four 512-bit lanes
 *
 * All bit strings are reflected, as CRC-32C and CRC-32 define them: bit 0 of a byte is the highest power.
 * x^n stands for "x^n modulo the polynomial", a reflected 32-bit number.
 */
#include "crc_kernels.h"
#include <string.h>

#define CASTAGNOLI 0x82F63B78u
#define IEEE 0xEDB88320u

static uint32_t TABLE_C[8][256], TABLE_IEEE[8][256];
static uint32_t POWER[64];          /* x^(8 * 2^k): moves a crc over 2^k bytes */
static uint32_t POWER_IEEE[64];     /* the same modulo the other polynomial */
static int chosen = CRC_TABLE;

/* a * b modulo the polynomial */
static uint32_t multiply(uint32_t poly, uint32_t a, uint32_t b)
{
    uint32_t product = 0;
    for (int i = 0; i < 32; i++) {
        product ^= b & -(a >> 31);
        a <<= 1;
        b = (b >> 1) ^ (poly & -(b & 1));
    }
    return product;
}

static uint32_t x_to_the(uint32_t poly, uint64_t n)
{
    uint32_t result = 0x80000000u, square = 0x40000000u;
    for (; n; n >>= 1) {
        if (n & 1) result = multiply(poly, result, square);
        square = multiply(poly, square, square);
    }
    return result;
}

static void fill_table(uint32_t poly, uint32_t table[8][256])
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int bit = 0; bit < 8; bit++) c = (c >> 1) ^ (poly & -(c & 1));
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

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define HAVE_X86 1
#include <immintrin.h>

#define SSE __attribute__((target("sse4.2,pclmul")))
#define AVX __attribute__((target("avx512f,avx512vl,avx512dq,vpclmulqdq,pclmul,sse4.2")))

enum { FOLD512_LEAST = 256 };                 /* bytes */
enum { MOST_WORDS = 128 };                    /* 64-bit words one of three streams takes in a round */
static uint32_t JOIN[MOST_WORDS + 1][2];      /* x^(64w - 33), x^(128w - 33): over one stream's words, over two */
static uint32_t POWER_33[64];                 /* x^(8 * 2^k - 33), for multiply_hw */
static uint64_t FOLD_C[3][2], FOLD_IEEE[3][2]; /* over 64, 256 and 16 bytes: the low and the high lane's factor */
static int has_sse, has_avx;

static inline uint64_t load64(const uint8_t *p) { uint64_t v; memcpy(&v, p, 8); return v; }

/* a * x^33 * k modulo Castagnoli: crc32q of the 63-bit product adds the x^33, so constants carry x^-33 */
SSE static inline uint32_t multiply_hw(uint32_t a, uint32_t k)
{
    __m128i product = _mm_clmulepi64_si128(_mm_cvtsi32_si128((int)a), _mm_cvtsi32_si128((int)k), 0);
    return (uint32_t)_mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(product));
}

SSE static inline uint32_t one_stream(uint32_t crc, const uint8_t *p, size_t n)
{
    uint64_t c = crc;
    for (; n >= 8; p += 8, n -= 8) c = _mm_crc32_u64(c, load64(p));
    crc = (uint32_t)c;
    if (n & 4) { uint32_t w; memcpy(&w, p, 4); crc = _mm_crc32_u32(crc, w); p += 4; }
    if (n & 2) { uint16_t w; memcpy(&w, p, 2); crc = _mm_crc32_u16(crc, w); p += 2; }
    if (n & 1) crc = _mm_crc32_u8(crc, *p);
    return crc;
}

/* crc32q takes 3 cycles and one can start in each: three streams side by side, each of w words */
SSE static uint32_t by_sse42(uint32_t crc, const uint8_t *p, size_t n)
{
    while (n >= 72) {
        size_t w = n / 24 < MOST_WORDS ? n / 24 : MOST_WORDS, bytes = 8 * w;
        uint64_t a = crc, b = 0, c = 0;
        for (size_t i = 0; i < bytes; i += 8) {
            a = _mm_crc32_u64(a, load64(p + i));
            b = _mm_crc32_u64(b, load64(p + bytes + i));
            c = _mm_crc32_u64(c, load64(p + 2 * bytes + i));
        }
        crc = multiply_hw((uint32_t)a, JOIN[w][1]) ^ multiply_hw((uint32_t)b, JOIN[w][0]) ^ (uint32_t)c;
        p += 3 * bytes;
        n -= 3 * bytes;
    }
    return one_stream(crc, p, n);
}

SSE static uint32_t shift_hw(uint32_t crc, uint64_t n)
{
    for (; n; n &= n - 1) crc = multiply_hw(crc, POWER_33[__builtin_ctzll(n)]);
    return crc;
}

SSE static inline __m128i fold(__m128i a, __m128i k, __m128i next)
{
    __m128i low = _mm_clmulepi64_si128(a, k, 0x00), high = _mm_clmulepi64_si128(a, k, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

SSE static inline __m128i lane(const uint8_t *p) { return _mm_loadu_si128((const __m128i *)p); }

SSE static inline __m128i factors(const uint64_t k[2]) { return _mm_set_epi64x((int64_t)k[1], (int64_t)k[0]); }

/* Folding keeps one port busy, crc32q another: 64 bytes on four lanes and 72 on three streams in the same ~9 cycles.
 * Layout of the rounds * 136 bytes: lanes' 64-byte parts first, then three equal runs of 24 bytes a round. */
SSE static uint32_t by_fusion(uint32_t crc, const uint8_t *p, size_t n)
{
    if (n < 2560) return by_sse42(crc, p, n);
    size_t rounds = n / 136, run = 24 * rounds;
    const uint8_t *a = p + 64 * rounds, *b = a + run, *c = b + run, *end = c + run;
    size_t rest = n - 136 * rounds;
    uint64_t ca = 0, cb = 0, cc = 0;
    __m128i k64 = factors(FOLD_C[0]), k16 = factors(FOLD_C[2]);
    __m128i x0 = _mm_xor_si128(lane(p), _mm_cvtsi32_si128((int)crc)), x1 = lane(p + 16), x2 = lane(p + 32), x3 = lane(p + 48);
    for (size_t left = rounds;;) {
        ca = _mm_crc32_u64(ca, load64(a)); cb = _mm_crc32_u64(cb, load64(b)); cc = _mm_crc32_u64(cc, load64(c));
        ca = _mm_crc32_u64(ca, load64(a + 8)); cb = _mm_crc32_u64(cb, load64(b + 8)); cc = _mm_crc32_u64(cc, load64(c + 8));
        ca = _mm_crc32_u64(ca, load64(a + 16)); cb = _mm_crc32_u64(cb, load64(b + 16)); cc = _mm_crc32_u64(cc, load64(c + 16));
        if (--left == 0) break;
        a += 24; b += 24; c += 24; p += 64;
        x0 = fold(x0, k64, lane(p)); x1 = fold(x1, k64, lane(p + 16));
        x2 = fold(x2, k64, lane(p + 32)); x3 = fold(x3, k64, lane(p + 48));
    }
    x3 = fold(fold(fold(x0, k16, x1), k16, x2), k16, x3);
    uint64_t v = _mm_crc32_u64(_mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(x3)), (uint64_t)_mm_extract_epi64(x3, 1));
    uint32_t joined = shift_hw(shift_hw(shift_hw((uint32_t)v, run) ^ (uint32_t)ca, run) ^ (uint32_t)cb, run) ^ (uint32_t)cc;
    return by_sse42(joined, end, rest);
}

#ifdef EMULATE_VPCLMULQDQ /* lets the arithmetic be tested on a processor with AVX-512 that lacks the instruction */
#undef AVX
#define AVX __attribute__((target("avx512f,avx512vl,avx512dq,pclmul,sse4.2")))
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

AVX static uint32_t by_fold512(uint32_t crc, const uint8_t *p, size_t n)
{
    if (n < FOLD512_LEAST) return by_sse42(crc, p, n);
    __m512i x0 = _mm512_loadu_si512(p), x1 = _mm512_loadu_si512(p + 64), x2 = _mm512_loadu_si512(p + 128), x3 = _mm512_loadu_si512(p + 192);
    x0 = _mm512_xor_si512(x0, _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)crc)));
    __m512i k = _mm512_broadcast_i32x4(factors(FOLD_C[1]));
    for (p += 256, n -= 256; n >= 256; p += 256, n -= 256) {
        x0 = fold512(x0, k, _mm512_loadu_si512(p)); x1 = fold512(x1, k, _mm512_loadu_si512(p + 64));
        x2 = fold512(x2, k, _mm512_loadu_si512(p + 128)); x3 = fold512(x3, k, _mm512_loadu_si512(p + 192));
    }
    k = _mm512_broadcast_i32x4(factors(FOLD_C[0]));
    x0 = fold512(fold512(fold512(x0, k, x1), k, x2), k, x3);
    for (; n >= 64; p += 64, n -= 64) x0 = fold512(x0, k, _mm512_loadu_si512(p));
    __m128i k16 = factors(FOLD_C[2]), last = _mm512_castsi512_si128(x0);
    last = fold(last, k16, _mm512_extracti32x4_epi32(x0, 1));
    last = fold(last, k16, _mm512_extracti32x4_epi32(x0, 2));
    last = fold(last, k16, _mm512_extracti32x4_epi32(x0, 3));
    uint64_t v = _mm_crc32_u64(_mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(last)), (uint64_t)_mm_extract_epi64(last, 1));
    return one_stream((uint32_t)v, p, n);
}

/* there is no crc32 instruction for IEEE's polynomial: fold down to 16 bytes, the table does these and the rest */
SSE static uint32_t ieee_by_folding(uint32_t crc, const uint8_t *p, size_t n)
{
    __m128i k64 = factors(FOLD_IEEE[0]), k16 = factors(FOLD_IEEE[2]);
    __m128i x0 = _mm_xor_si128(lane(p), _mm_cvtsi32_si128((int)crc)), x1 = lane(p + 16), x2 = lane(p + 32), x3 = lane(p + 48);
    for (p += 64, n -= 64; n >= 64; p += 64, n -= 64) {
        x0 = fold(x0, k64, lane(p)); x1 = fold(x1, k64, lane(p + 16));
        x2 = fold(x2, k64, lane(p + 32)); x3 = fold(x3, k64, lane(p + 48));
    }
    x3 = fold(fold(fold(x0, k16, x1), k16, x2), k16, x3);
    for (; n >= 16; p += 16, n -= 16) x3 = fold(x3, k16, lane(p));
    uint8_t last[16];
    _mm_storeu_si128((__m128i *)last, x3);
    return by_table(TABLE_IEEE, by_table(TABLE_IEEE, 0, last, 16), p, n);
}

/* A 64-bit lane that is moved over `bytes` bytes is multiplied by x^(8 bytes); the low lane stands 64 bits further
 * left than the high one; the reflected 64 x 33 bit product costs 32 powers and one bit more. */
static void fill_fold(uint32_t poly, uint64_t fold_factors[3][2])
{
    static const int over[3] = {64, 256, 16};
    for (int i = 0; i < 3; i++) {
        fold_factors[i][0] = (uint64_t)x_to_the(poly, 8 * over[i] + 32) << 1;
        fold_factors[i][1] = (uint64_t)x_to_the(poly, 8 * over[i] - 32) << 1;
    }
}

static void init_x86(void)
{
    const uint64_t order = 0x7fffffff; /* x^(2^31 - 1) = 1 modulo Castagnoli */
    for (int w = 1; w <= MOST_WORDS; w++) {
        JOIN[w][0] = x_to_the(CASTAGNOLI, 64 * (uint64_t)w - 33);
        JOIN[w][1] = x_to_the(CASTAGNOLI, 128 * (uint64_t)w - 33);
    }
    uint64_t exponent = 8;
    for (int k = 0; k < 64; k++, exponent = exponent * 2 % order)
        POWER_33[k] = x_to_the(CASTAGNOLI, (exponent + order - 33) % order);
    fill_fold(CASTAGNOLI, FOLD_C);
    fill_fold(IEEE, FOLD_IEEE);
    __builtin_cpu_init();
    has_sse = __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
    has_avx = has_sse && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
#ifndef EMULATE_VPCLMULQDQ
    has_avx = has_avx && __builtin_cpu_supports("vpclmulqdq");
#endif
}
#else
#define HAVE_X86 0
#endif

void crc_init(void)
{
    if (TABLE_C[0][1]) return;
    fill_table(CASTAGNOLI, TABLE_C);
    fill_table(IEEE, TABLE_IEEE);
    POWER[0] = x_to_the(CASTAGNOLI, 8);
    POWER_IEEE[0] = x_to_the(IEEE, 8);
    for (int k = 1; k < 64; k++) {
        POWER[k] = multiply(CASTAGNOLI, POWER[k - 1], POWER[k - 1]);
        POWER_IEEE[k] = multiply(IEEE, POWER_IEEE[k - 1], POWER_IEEE[k - 1]);
    }
#if HAVE_X86
    init_x86();
    chosen = has_avx ? CRC_FOLD512 : has_sse ? CRC_FUSION : CRC_TABLE;
#endif
}

int crc_kernel(void) { return chosen; }

int crc_kernel_usable(int kernel)
{
#if HAVE_X86
    if (kernel == CRC_FOLD512) return has_avx;
    if (kernel == CRC_SSE42 || kernel == CRC_FUSION) return has_sse;
#endif
    return kernel == CRC_TABLE;
}

const char *crc_kernel_name(int kernel)
{
    static const char *const names[CRC_KERNELS] = {"table", "sse42", "fusion", "fold512"};
    return kernel >= 0 && kernel < CRC_KERNELS ? names[kernel] : "unknown";
}

uint32_t crc32c_by(int kernel, uint32_t crc, const uint8_t *p, size_t n)
{
    switch (kernel) {
#if HAVE_X86
    case CRC_FOLD512: return ~by_fold512(~crc, p, n);
    case CRC_FUSION: return ~by_fusion(~crc, p, n);
    case CRC_SSE42: return ~by_sse42(~crc, p, n);
#endif
    default: return ~by_table(TABLE_C, ~crc, p, n);
    }
}

uint32_t crc32c(uint32_t crc, const uint8_t *p, size_t n)
{
#if HAVE_X86
    /* every faster kernel hands these few bytes on to this one: the calls between cost as much as 40 bytes */
    if (n < FOLD512_LEAST && chosen != CRC_TABLE) return ~by_sse42(~crc, p, n);
#endif
    return crc32c_by(chosen, crc, p, n);
}

uint32_t crc32_ieee(uint32_t crc, const uint8_t *p, size_t n)
{
#if HAVE_X86
    if (has_sse && n >= 64) return ~ieee_by_folding(~crc, p, n);
#endif
    return ~by_table(TABLE_IEEE, ~crc, p, n);
}

uint32_t crc32c_shift(uint32_t crc, uint64_t n)
{
#if HAVE_X86
    if (has_sse) return shift_hw(crc, n);
#endif
    for (; n; n &= n - 1) crc = multiply(CASTAGNOLI, crc, POWER[__builtin_ctzll(n)]);
    return crc;
}

uint32_t crc32_ieee_shift(uint32_t crc, uint64_t n)
{
    for (; n; n &= n - 1) crc = multiply(IEEE, crc, POWER_IEEE[__builtin_ctzll(n)]);
    return crc;
}
