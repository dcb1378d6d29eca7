/* Writes hostile bytes into memory that somebody else reads, until it is stopped.
 *
 *   case     n bytes at p; `good` are the bytes that belong there; `places` are the fields worth a
 *            change
 *   control  shared by the two sides: which case is in use (and a second one that is changed too),
 * when to stop
 *
 * Each turn changes one to three places, waits for a random time, and writes the good bytes back.
 * So the reader meets both: bytes that pass its first look, and other bytes at its second look.
 *
 * Two byte values are never written: POISON_FREE and POISON_NEW. Memory around the cases and
 * released memory hold them, so a reader that hands them out has read what is not its own.
 */
#include <sched.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

enum { POISON_FREE = 0x7E, POISON_NEW = 0x81 };
enum { BYTES, NUMBERS };
enum { MAX_SPINS = 12, YIELD_EVERY = 64 };
#define NO_CASE (~(uint64_t)0)

typedef struct { uint32_t at, size; } Place;
typedef struct {
    uint8_t *p;
    const uint8_t *good;
    const uint8_t *twin; /* another whole version of the same size, or NULL */
    const Place *places;
    uint32_t n, places_count;
    uint32_t kind, unused;
} Case;
typedef struct { volatile uint64_t stop, first, second, writes; } Control;

static uint64_t rnd(uint64_t *state)
{
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}
static uint32_t below(uint64_t *state, uint32_t n)
{
    return n ? (uint32_t)(((rnd(state) >> 32) * n) >> 32) : 0;
}

static const uint8_t ODD[] = {0, 0, 1, 1, 2, 3, 4, 5, 7, 0x0F, 0x1F, 0x40, 0x7F, 0x80, 0x82,
    0xC8, 0xFD, 0xFE, 0xFF, 0xFF};
static const char *const VARINTS[] = {"\xfe\xff\xff\xff\x0f", "\xff\xff\xff\xff\x0f",
    "\xfc\xff\xff\xff\x0f", "\x80\x80\x80\x80\x08", "\x80\x80\x40", "\xf0\xff\x07", "\xff\x7f",
    "\xfe\x7f", "\x80\x02", "\xe0\x5d", "\xff\xff\x03",
    "\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", "\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80"};
static const int64_t NUMBERS_ODD[] = {0, 1, -1, -2, 16, 61, 1000, 4096, 1 << 20, 1LL << 31,
    0x7FFFFFFF, 1LL << 40, 1LL << 62, INT64_MAX, INT64_MIN, INT64_MAX - 60, -4096, -1000000};

static void put(volatile uint8_t *p, uint8_t v)
{
    *p = v == POISON_FREE ? 0x7C : v == POISON_NEW ? 0x80 : v;
}

/* One change; where it is, and how long. */
static Place change(const Case *c, uint64_t *state)
{
    Place at = {below(state, c->n), 1};
    uint32_t i, from;
    if (c->n == 0) return (Place){0, 0};
    if (c->kind == NUMBERS) {
        int64_t v = NUMBERS_ODD[below(state, sizeof NUMBERS_ODD / sizeof *NUMBERS_ODD)];
        if (c->n < 8) return (Place){0, 0};
        at = (Place){below(state, c->n / 8) * 8, 8};
        *(volatile int64_t *)(c->p + at.at) = v;
        return at;
    }
    if (c->places_count && below(state, 4)) at = c->places[below(state, c->places_count)];
    switch (below(state, 7)) {
    case 0: { /* near to what it was */
        i = at.at + at.size - 1;
        put(c->p + i, (uint8_t)(c->good[i] + below(state, 7) - 3));
        return (Place){i, 1};
    }
    case 1:
        put(c->p + at.at, (uint8_t)(c->good[at.at] ^ 1 << below(state, 8)));
        return (Place){at.at, 1};
    case 2: {
        const char *text = VARINTS[below(state, sizeof VARINTS / sizeof *VARINTS)];
        uint32_t size = (uint32_t)strlen(text);
        if (size > c->n - at.at) size = c->n - at.at;
        for (i = 0; i < size; i++) put(c->p + at.at + i, (uint8_t)text[i]);
        return (Place){at.at, size};
    }
    case 3: { /* bytes of another place */
        at.size = 1 + below(state, 16);
        if (at.size > c->n - at.at) at.size = c->n - at.at;
        from = below(state, c->n - at.size + 1);
        for (i = 0; i < at.size; i++) put(c->p + at.at + i, c->good[from + i]);
        return at;
    }
    case 4: { /* a whole number, its high bytes first */
        uint8_t high = ODD[below(state, sizeof ODD)], low = (uint8_t)rnd(state);
        for (i = 0; i < at.size; i++)
            put(c->p + at.at + i,
                i + 1 == at.size ? low : i ? (uint8_t)(high & 0x80 ? 0xFF : 0) : high);
        return at;
    }
    default:
        put(c->p + at.at, ODD[below(state, sizeof ODD)]);
        return (Place){at.at, 1};
    }
}

static void restore(const Case *c, Place at)
{
    for (uint32_t i = 0; i < at.size; i++)
        ((volatile uint8_t *)c->p)[at.at + i] = c->good[at.at + i];
}

static void spin(uint64_t *state)
{
    volatile uint32_t left = below(state, 1u << below(state, MAX_SPINS));
    while (left) left--;
}

/* One change that stays. For a reader that is stopped at a known place. */
void hostile_change(const Case *c, uint64_t *state)
{
    if (c->twin && below(state, 4) == 0) memcpy(c->p, c->twin, c->n);
    else change(c, state);
}

/* Until control->stop, or until the process `parent` has ended (0: nobody is asked). */
void hostile_writes(Control *control, const Case *cases, uint64_t seed, int64_t parent)
{
    Place made[3];
    uint64_t state = seed;
    while (!control->stop) {
        uint64_t first = control->first, second = control->second;
        const Case *c;
        uint32_t count, i;
        if (first == NO_CASE) { sched_yield(); continue; }
        c = cases + (second != NO_CASE && below(&state, 2) ? second : first);
        if (c->twin && below(&state, 6) == 0) {
            memcpy(c->p, c->twin, c->n);
            spin(&state);
            memcpy(c->p, c->good, c->n);
        } else {
            count = 1 + (below(&state, 3) == 0) + (below(&state, 9) == 0);
            for (i = 0; i < count; i++) made[i] = change(c, &state);
            spin(&state);
            for (i = 0; i < count; i++) restore(c, made[i]);
        }
        spin(&state);
        control->writes++;
        if (control->writes % YIELD_EVERY == 0) {
            if (parent && getppid() != parent) return;
            sched_yield();
        }
    }
}
