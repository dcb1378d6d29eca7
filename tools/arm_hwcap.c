/* Preloaded into an ARM64 process: hides the hardware capabilities in BATCHVAL_HIDDEN_HWCAP.
 * So the CRC kernels of processors that qemu does not have are tried: without PMULL, without crc32.
 * */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/auxv.h>

unsigned long getauxval(unsigned long type)
{
    unsigned long (*found)(unsigned long);
    *(void **)&found = dlsym(RTLD_NEXT, "getauxval"); /* as POSIX writes it */
    const char *hidden = getenv("BATCHVAL_HIDDEN_HWCAP");
    unsigned long value = found(type);
    if (type == AT_HWCAP && hidden != NULL) value &= ~strtoul(hidden, NULL, 0);
    return value;
}
