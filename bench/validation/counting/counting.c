/* Counts every allocator call of a process; loaded with LD_PRELOAD, on glibc.
 *
 * malloc, calloc, realloc, the aligned ones, free, mmap and munmap, by whatever library they are
 * called; with PYTHONMALLOC=malloc Python's object allocator comes through here too. `bytes` is
 * what was asked for. */
#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

enum { MALLOC, CALLOC, REALLOC, MEMALIGN, FREE, MMAP, MUNMAP, BYTES, NUMBERS }; /* in the order of native.COUNTED */
static int64_t numbers[NUMBERS];

static void count(int what, size_t bytes)
{
    __atomic_fetch_add(&numbers[what], 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&numbers[BYTES], (int64_t)bytes, __ATOMIC_RELAXED);
}

void counting_read(int64_t *to)
{
    for (int i = 0; i < NUMBERS; i++) to[i] = __atomic_load_n(&numbers[i], __ATOMIC_RELAXED);
}

void *malloc(size_t n)
{
    count(MALLOC, n);
    return __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    count(CALLOC, n * size);
    return __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
    count(REALLOC, n);
    return __libc_realloc(p, n);
}

void free(void *p)
{
    if (p) count(FREE, 0);
    __libc_free(p);
}

void *memalign(size_t alignment, size_t n)
{
    count(MEMALIGN, n);
    return __libc_memalign(alignment, n);
}

void *aligned_alloc(size_t alignment, size_t n) { return memalign(alignment, n); }

int posix_memalign(void **to, size_t alignment, size_t n)
{
    void *p = memalign(alignment, n);
    if (!p) return ENOMEM;
    *to = p;
    return 0;
}

void *mmap(void *address, size_t n, int protection, int flags, int file, off_t offset)
{
    count(MMAP, n);
    return (void *)syscall(SYS_mmap, address, n, protection, flags, file, offset);
}

void *mmap64(void *address, size_t n, int protection, int flags, int file, off_t offset)
{
    return mmap(address, n, protection, flags, file, offset);
}

int munmap(void *address, size_t n)
{
    count(MUNMAP, 0);
    return (int)syscall(SYS_munmap, address, n);
}
