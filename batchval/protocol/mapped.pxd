"""Memory that the system maps, and has back as soon as it is released.

Its sizes are whole pages. Any thread may call these, with or without the GIL.
"""

from libc.stddef cimport size_t
from libc.stdint cimport uint8_t

cdef extern from *:
    """
    #include <pthread.h>
    #include <signal.h>
    #include <stddef.h>
    #include <sys/mman.h>

    enum { UNMAPPED_IN_A_THREAD = 16 << 20 };

    static inline unsigned char *map_memory(size_t size) {
        void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        return memory == MAP_FAILED ? NULL : memory;
    }

    /* Linux refuses to cut a mapping in two where the process has 65,530: its pages go back. */
    static inline void unmap_now(void *memory, size_t size) {
        if (munmap(memory, size))
            (void)madvise(memory, size, MADV_DONTNEED);
    }

    /* The size stands in the memory itself. */
    static inline void *unmap_in_thread(void *memory) {
        unmap_now(memory, *(size_t *)memory);
        return NULL;
    }

    static inline void unmap_memory(unsigned char *memory, size_t size) {
        pthread_t thread;
        sigset_t all, before;
        int failed = 1;
        if (size >= UNMAPPED_IN_A_THREAD) {
            *(size_t *)(void *)memory = size;
            sigfillset(&all); /* signals are for the threads of Python */
            pthread_sigmask(SIG_SETMASK, &all, &before);
            failed = pthread_create(&thread, NULL, unmap_in_thread, memory);
            pthread_sigmask(SIG_SETMASK, &before, NULL);
        }
        if (failed)
            unmap_now(memory, size);
        else
            pthread_detach(thread);
    }

    /* The pages themselves move. NULL: not on this system, or not enough address space. */
    static inline unsigned char *remap_memory(unsigned char *memory, size_t size, size_t new_size) {
    #ifdef __linux__
        void *moved = mremap(memory, size, new_size, MREMAP_MAYMOVE);
        return moved == MAP_FAILED ? NULL : moved;
    #else
        (void)memory, (void)size, (void)new_size;
        return NULL;
    #endif
    }
    """
    uint8_t *map_memory(size_t size) noexcept nogil
    void unmap_memory(uint8_t *memory, size_t size) noexcept nogil
    uint8_t *remap_memory(uint8_t *memory, size_t size, size_t new_size) noexcept nogil
