/* Computes CRCs of a buffer: arm_count KERNEL BYTES TIMES. tools/arm.py counts its instructions. */
#include "crc_kernels.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    if (argc != 4) return 2;
    int kernel = 0;
    size_t size = strtoul(argv[2], NULL, 10);
    uint8_t *data = malloc(size);
    uint32_t crc = 0;
    crc_init();
    while (kernel < CRC_KERNELS && strcmp(crc_kernel_name(kernel), argv[1]) != 0) kernel++;
    if (data == NULL || kernel == CRC_KERNELS || !crc_kernel_usable(kernel)) return 1;
    for (size_t i = 0; i < size; i++) data[i] = (uint8_t)(i * 131 >> 3);
    for (int times = atoi(argv[3]); times > 0; times--) crc = crc32c_by(kernel, crc, data, size);
    printf("%08x\n", crc);
    free(data);
    return 0;
}
