/* The processor's checksum instructions, under the same names on x86-64 and ARM64.
 *
 *   CRC              attribute of a function that uses the steps alone
 *   CRC_CLMUL        attribute of a function that uses the carry-less multiplication too
 *   step8 .. step64  add 1, 2, 4 or 8 bytes to a crc register
 *   clmul32          the 63-bit carry-less product of two 32-bit numbers
 *   find_features    sets has_crc and has_clmul: what this processor can do
 *
 * No compiler flag enables an instruction: the attributes do, so one build runs on every processor.
 * HAVE_STEPS is 0 where none of this exists. With HAVE_IEEE_STEPS the steps take both polynomials.
 */
#ifndef BATCHVAL_CRC_PRIMITIVES_H
#define BATCHVAL_CRC_PRIMITIVES_H
#include <stdint.h>
#include <string.h>

enum { CASTAGNOLI, IEEE, POLYNOMIALS };

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define HAVE_X86 1
#else
#define HAVE_X86 0
#endif

/* Before clang 16 the ARM headers declare an intrinsic only if a compiler flag enables it. */
#if defined(__clang__) && __clang_major__ < 16 \
    && !(defined(__ARM_FEATURE_CRC32) && defined(__ARM_FEATURE_CRYPTO))
#define HAVE_ARM_HEADERS 0
#else
#define HAVE_ARM_HEADERS 1
#endif

#if defined(__aarch64__) && defined(__ORDER_LITTLE_ENDIAN__) \
    && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ && (defined(__linux__) || defined(__APPLE__)) \
    && HAVE_ARM_HEADERS
#define HAVE_ARM 1
#else
#define HAVE_ARM 0
#endif

#define HAVE_STEPS (HAVE_X86 || HAVE_ARM)
#define HAVE_IEEE_STEPS HAVE_ARM

#if HAVE_STEPS
#define INLINE static inline __attribute__((always_inline))

static int has_crc, has_clmul;

INLINE uint64_t load64(const uint8_t *p) { uint64_t v; memcpy(&v, p, 8); return v; }
INLINE uint32_t load32(const uint8_t *p) { uint32_t v; memcpy(&v, p, 4); return v; }
INLINE uint16_t load16(const uint8_t *p) { uint16_t v; memcpy(&v, p, 2); return v; }
#endif

#if HAVE_X86
#include <immintrin.h>
#include "cpu_features.h"

/* Since clang 14 crc32 is a feature of its own; for GCC it is a part of sse4.2. */
#if defined(__clang__) && __clang_major__ >= 14
#define SSE42 "sse4.2,crc32"
#else
#define SSE42 "sse4.2"
#endif
#define CRC __attribute__((target(SSE42)))
#define CRC_CLMUL __attribute__((target(SSE42 ",pclmul")))

/* crc32q returns a 64-bit register whose upper half is 0 */
typedef uint64_t crc_register;

/* x86 has the instruction for Castagnoli's polynomial only. */
CRC INLINE crc_register step64(int poly, crc_register c, uint64_t v)
{
    (void)poly;
    return _mm_crc32_u64(c, v);
}

CRC INLINE uint32_t step32(int poly, uint32_t c, uint32_t v)
{
    (void)poly;
    return _mm_crc32_u32(c, v);
}

CRC INLINE uint32_t step16(int poly, uint32_t c, uint16_t v)
{
    (void)poly;
    return _mm_crc32_u16(c, v);
}

CRC INLINE uint32_t step8(int poly, uint32_t c, uint8_t v)
{
    (void)poly;
    return _mm_crc32_u8(c, v);
}

CRC_CLMUL INLINE uint64_t clmul32(uint32_t a, uint32_t b)
{
    __m128i x = _mm_cvtsi32_si128((int)a), y = _mm_cvtsi32_si128((int)b);
    return (uint64_t)_mm_cvtsi128_si64(_mm_clmulepi64_si128(x, y, 0));
}

static void find_features(void)
{
    has_crc = has_clmul = (cpu_features() & CPU_SSE42_PCLMUL) != 0;
}
#endif

#if HAVE_ARM
#include <arm_acle.h>
#include <arm_neon.h>
#ifdef __APPLE__
#include <sys/sysctl.h>
#else
#include <sys/auxv.h>
#endif

/* GCC 10's arm_neon.h wants the whole crypto extension for PMULL, clang's the AES part of it */
#ifdef __clang__
#define CRC __attribute__((target("crc")))
#define CRC_CLMUL __attribute__((target("crc,aes")))
#else
#define CRC __attribute__((target("+crc")))
#define CRC_CLMUL __attribute__((target("+crc+crypto")))
#endif

typedef uint32_t crc_register;

CRC INLINE crc_register step64(int poly, crc_register c, uint64_t v)
{
    return poly == IEEE ? __crc32d(c, v) : __crc32cd(c, v);
}

CRC INLINE uint32_t step32(int poly, uint32_t c, uint32_t v)
{
    return poly == IEEE ? __crc32w(c, v) : __crc32cw(c, v);
}

CRC INLINE uint32_t step16(int poly, uint32_t c, uint16_t v)
{
    return poly == IEEE ? __crc32h(c, v) : __crc32ch(c, v);
}

CRC INLINE uint32_t step8(int poly, uint32_t c, uint8_t v)
{
    return poly == IEEE ? __crc32b(c, v) : __crc32cb(c, v);
}

CRC_CLMUL INLINE uint64_t clmul32(uint32_t a, uint32_t b)
{
    return vreinterpretq_u64_p128(vmull_p64((poly64_t)a, (poly64_t)b))[0];
}

#ifdef __APPLE__
/* Apple: Kernel, sysctlbyname, Determining Instruction Set Characteristics */
static int is_set(const char *name)
{
    int value = 0;
    size_t size = sizeof value;
    return sysctlbyname(name, &value, &size, NULL, 0) == 0 && value != 0;
}

static void find_features(void)
{
    has_crc = is_set("hw.optional.armv8_crc32");
    has_clmul = is_set("hw.optional.arm.FEAT_PMULL");
}
#else
/* https://docs.kernel.org/arch/arm64/elf_hwcaps.html */
static void find_features(void)
{
    unsigned long features = getauxval(AT_HWCAP);
    has_crc = (features & HWCAP_CRC32) != 0;
    has_clmul = (features & HWCAP_PMULL) != 0;
}
#endif
#endif
#endif
