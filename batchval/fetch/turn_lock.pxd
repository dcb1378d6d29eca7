"""The lock between a native thread and callers of Python: one of them at a time works on its data.

    thread   step_aside, then anything that waits (poll), then step_in; or let_others_in between
             two pieces of work
    caller   take_turn, which waits until the thread stands aside, work, give_turn

Neither waits for the GIL while it holds the turn.
"""

cdef extern from *:
    """
    #include <pthread.h>

    typedef struct {
        pthread_mutex_t mutex;
        pthread_cond_t changed;
        int callers; /* that wait or work */
        int is_running;
        int is_aside;
    } batchval_turns;

    static inline int batchval_turns_open(batchval_turns *t) {
        t->callers = t->is_running = 0;
        t->is_aside = 1;
        if (pthread_mutex_init(&t->mutex, NULL)) return -1;
        if (pthread_cond_init(&t->changed, NULL) == 0) return 0;
        pthread_mutex_destroy(&t->mutex);
        return -1;
    }

    static inline void batchval_turns_close(batchval_turns *t) {
        pthread_cond_destroy(&t->changed);
        pthread_mutex_destroy(&t->mutex);
    }

    static inline void batchval_take_turn(batchval_turns *t) {
        pthread_mutex_lock(&t->mutex);
        __atomic_add_fetch(&t->callers, 1, __ATOMIC_RELAXED);
        while (!t->is_aside)
            pthread_cond_wait(&t->changed, &t->mutex);
    }

    static inline void batchval_give_turn(batchval_turns *t) {
        __atomic_sub_fetch(&t->callers, 1, __ATOMIC_RELAXED);
        pthread_cond_broadcast(&t->changed);
        pthread_mutex_unlock(&t->mutex);
    }

    static inline void batchval_step_aside(batchval_turns *t) {
        pthread_mutex_lock(&t->mutex);
        t->is_aside = 1;
        pthread_cond_broadcast(&t->changed);
        pthread_mutex_unlock(&t->mutex);
    }

    static inline void batchval_step_in(batchval_turns *t) {
        pthread_mutex_lock(&t->mutex);
        while (t->callers)
            pthread_cond_wait(&t->changed, &t->mutex);
        t->is_aside = 0;
        pthread_mutex_unlock(&t->mutex);
    }

    static inline void batchval_let_others_in(batchval_turns *t) {
        if (!__atomic_load_n(&t->callers, __ATOMIC_RELAXED)) return;
        batchval_step_aside(t);
        batchval_step_in(t);
    }
    """
    ctypedef struct Turns "batchval_turns":
        bint is_running
        bint is_aside
    int open_turns "batchval_turns_open"(Turns *turns) noexcept nogil
    void close_turns "batchval_turns_close"(Turns *turns) noexcept nogil
    void take_turn "batchval_take_turn"(Turns *turns) noexcept nogil
    void give_turn "batchval_give_turn"(Turns *turns) noexcept nogil
    void step_aside "batchval_step_aside"(Turns *turns) noexcept nogil
    void step_in "batchval_step_in"(Turns *turns) noexcept nogil
    void let_others_in "batchval_let_others_in"(Turns *turns) noexcept nogil
