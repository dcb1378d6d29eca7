/* CRC-32C (Castagnoli: magic 2 batches) and CRC-32 (IEEE: magic 0/1 messages, gzip members).
 * A crc argument and result is the finished value, as written into a header: crc of nothing is 0.
 */
#ifndef BATCHVAL_CRC_KERNELS_H
#define BATCHVAL_CRC_KERNELS_H
#include <stddef.h>
#include <stdint.h>

/* slowest first among those that one processor can have */
enum { CRC_TABLE, CRC_SSE42, CRC_FUSION, CRC_FOLD512, CRC_ARMV8_CRC, CRC_ARMV8, CRC_KERNELS };

void crc_init(void);                          /* fills the tables and picks the kernel; call once, before all else */
int crc_kernel(void);                         /* the CRC-32C kernel picked for long inputs */
int crc_kernel_usable(int kernel);            /* does this processor have what the kernel needs? */
const char *crc_kernel_name(int kernel);

uint32_t crc32c(uint32_t crc, const uint8_t *p, size_t n);
uint32_t crc32c_by(int kernel, uint32_t crc, const uint8_t *p, size_t n); /* for tests: one named kernel */
uint32_t crc32_ieee(uint32_t crc, const uint8_t *p, size_t n);

/* The crc that a buffer has when n more bytes follow: with it crc(A'B) = crc(AB) ^ shift(crc(A) ^ crc(A'), len B)
 * for A and A' of any lengths, in O(log n). */
uint32_t crc32c_shift(uint32_t crc, uint64_t n);
uint32_t crc32_ieee_shift(uint32_t crc, uint64_t n);
#endif
