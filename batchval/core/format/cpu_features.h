/* What an x86-64 processor and its system offer, by CPUID and XGETBV (Intel SDM, volume 2).
 *
 * __builtin_cpu_supports reads a table of the compiler's run-time library. clang links its own into
 * the module. That code is not marked for CET, and one unmarked object unmarks the module. */
#ifndef BATCHVAL_CPU_FEATURES_H
#define BATCHVAL_CPU_FEATURES_H

#include <cpuid.h>

enum {
    CPU_SSE42_PCLMUL = 1,
    CPU_BMI2 = 2,        /* and BMI1 */
    CPU_AVX512 = 4,      /* F, VL and DQ, and the system keeps the registers */
    CPU_VPCLMULQDQ = 8
};

/* Return the CPU_ bits of this processor. */
static unsigned cpu_features(void)
{
    enum { OSXSAVE = 1 << 27, SSE42_PCLMUL = 1 << 20 | 1 << 1, BMI = 1 << 8 | 1 << 3 };
    enum { XMM_TO_ZMM = 0xe6 }; /* bits of XCR0 */
    const unsigned avx512 = 1u << 31 | 1u << 17 | 1u << 16;
    unsigned a, b, c, d, found = 0, kept = 0, high;
    if (!__get_cpuid(1, &a, &b, &c, &d))
        return 0;
    if ((c & SSE42_PCLMUL) == SSE42_PCLMUL)
        found |= CPU_SSE42_PCLMUL;
    if (c & OSXSAVE)
        __asm__ volatile("xgetbv" : "=a"(kept), "=d"(high) : "c"(0));
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d))
        return found;
    if ((b & BMI) == BMI)
        found |= CPU_BMI2;
    if ((kept & XMM_TO_ZMM) == XMM_TO_ZMM && (b & avx512) == avx512)
        found |= CPU_AVX512 | (c & 1 << 10 ? CPU_VPCLMULQDQ : 0);
    return found;
}

#endif
