/* Makes hostile batches out of good ones, fast enough that the making does not bound a fuzz run.
 *
 *   a seed of magic 2:  offset:8 size:4 epoch:4 magic:1 crc:4 ... (61 bytes), then records
 *   others:             messages of magic 0 and 1
 *
 * A blind bit flip dies at the checksum. So a change is made where it means something (a varint of
 * a record, a field of a header, the framing of a compressed stream), and sizes and checksums are
 * then made right again: the damage is reached. Streams are written here with stored blocks, so
 * that changed records come in all four codecs without a compressor.
 *
 * Own checksums: nothing of the code under test is used. Everything follows from the 64-bit state:
 * a run can be repeated.
 */
#include <stdint.h>
#include <string.h>

typedef struct { uint8_t *p; uint32_t n, cap; } Out;
typedef struct { uint32_t at, size, record; int kind; int64_t value; } Field;
enum { LENGTH, ATTRIBUTES, TIMESTAMP, OFFSET, KEY_LENGTH, VALUE_LENGTH, HEADERS, HEADER_KEY, HEADER_VALUE };
enum { MAX_FIELDS = 256, MAX_RECORDS = 64, WORK = 16384 };

/* ---- numbers ---- */

static uint64_t state_;
static uint64_t rnd(void)
{
    uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}
static uint32_t below(uint32_t n) { return n ? (uint32_t)(((rnd() >> 32) * n) >> 32) : 0; }
static int chance(uint32_t percent) { return below(100) < percent; }

static const int64_t ODD[] = {0, 0, 1, -1, -1, -2, 2, 3, 7, 13, 14, 61, 63, 64, -64, -65, 127, 128, 255, 256, 8191, 8192, 65535, 65536,
    1 << 20, 1 << 24, 0x7FFFFFFF, 0x7FFFFFFE, 0x7FFFFFF3, 0x7FFFFFF4, -0x7FFFFFFF - 1LL, 0x80000000LL, 0xFFFFFFFFLL,
    0x7FFFFFFFFFFFFFFFLL, -0x7FFFFFFFFFFFFFFFLL - 1, 1700000000000LL, -1700000000000LL};
static int64_t odd(int64_t near)
{
    switch (below(4)) {
    case 0: return near + (int64_t)below(5) - 2;
    case 1: return (int64_t)(int8_t)rnd();
    default: return ODD[below(sizeof ODD / sizeof *ODD)];
    }
}

static void be(uint8_t *p, uint64_t v, int n) { for (int i = n - 1; i >= 0; i--, v >>= 8) p[i] = (uint8_t)v; }
static void le(uint8_t *p, uint64_t v, int n) { for (int i = 0; i < n; i++, v >>= 8) p[i] = (uint8_t)v; }
static uint32_t get32(const uint8_t *p) { return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3]; }

/* ---- checksums ---- */

static uint32_t T_C[8][256], T_I[8][256];
static void fill(uint32_t poly, uint32_t t[8][256])
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int k = 0; k < 8; k++) c = c & 1 ? poly ^ (c >> 1) : c >> 1;
        t[0][i] = c;
    }
    for (int s = 1; s < 8; s++)
        for (int i = 0; i < 256; i++) t[s][i] = t[0][t[s - 1][i] & 255] ^ (t[s - 1][i] >> 8);
}
static uint32_t crc_by(uint32_t t[8][256], const uint8_t *p, uint32_t n)
{
    uint32_t c = ~0u;
    for (; n >= 8; n -= 8, p += 8) {
        uint32_t a = c ^ (p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
        c = t[7][a & 255] ^ t[6][a >> 8 & 255] ^ t[5][a >> 16 & 255] ^ t[4][a >> 24] ^ t[3][p[4]] ^ t[2][p[5]] ^ t[1][p[6]] ^ t[0][p[7]];
    }
    for (; n; n--) c = t[0][(c ^ *p++) & 255] ^ (c >> 8);
    return ~c;
}
static void tables(void) { if (!T_C[0][1]) { fill(0x82F63B78u, T_C); fill(0xEDB88320u, T_I); } }

static uint32_t rotl(uint32_t v, int n) { return v << n | v >> (32 - n); }
static uint32_t xxh32(const uint8_t *p, uint32_t n)
{
    const uint32_t a = 0x9E3779B1u, b = 0x85EBCA77u, c = 0xC2B2AE3Du, d = 0x27D4EB2Fu, e = 0x165667B1u;
    const uint8_t *end = p + n;
    uint32_t h = e, w;
    if (n >= 16) {
        uint32_t v[4] = {a + b, b, 0, 0u - a};
        for (; end - p >= 16; p += 16)
            for (int i = 0; i < 4; i++) { memcpy(&w, p + 4 * i, 4); v[i] = rotl(v[i] + w * b, 13) * a; }
        h = rotl(v[0], 1) + rotl(v[1], 7) + rotl(v[2], 12) + rotl(v[3], 18);
    }
    h += n;
    for (; end - p >= 4; p += 4) { memcpy(&w, p, 4); h = rotl(h + w * c, 17) * d; }
    for (; p < end; p++) h = rotl(h + *p * e, 11) * a;
    h = (h ^ h >> 15) * b;
    h = (h ^ h >> 13) * c;
    return h ^ h >> 16;
}

/* ---- output ---- */

static void put(Out *o, const void *p, uint32_t n)
{
    if (n > o->cap - o->n) n = o->cap - o->n;
    if (n) memcpy(o->p + o->n, p, n);
    o->n += n;
}
static void put_byte(Out *o, int v) { uint8_t b = (uint8_t)v; put(o, &b, 1); }
static void put_be(Out *o, uint64_t v, int n) { uint8_t b[8]; be(b, v, n); put(o, b, (uint32_t)n); }
static void put_le(Out *o, uint64_t v, int n) { uint8_t b[8]; le(b, v, n); put(o, b, (uint32_t)n); }
static void put_unsigned(Out *o, uint64_t v) { for (; v >= 0x80; v >>= 7) put_byte(o, (int)(v | 0x80) & 0xFF); put_byte(o, (int)v); }
static void put_noise(Out *o, uint32_t n) { for (; n; n--) put_byte(o, chance(30) ? 0 : (int)rnd()); }

/* ---- bytes ---- */

/* where a change of n bytes tells most: near the two ends */
static uint32_t place(uint32_t n)
{
    switch (below(4)) {
    case 0: return below(n < 24 ? n : 24);
    case 1: return n - 1 - below(n < 12 ? n : 12);
    default: return below(n);
    }
}

static void damage(Out *o, uint32_t from)
{
    uint32_t n = o->n - from, at, k;
    uint8_t *p = o->p + from;
    if (n == 0) { put_noise(o, below(20)); return; }
    at = place(n);
    switch (below(9)) {
    case 0: p[at] ^= (uint8_t)(1 << below(8)); break;
    case 1: p[at] = (uint8_t)rnd(); break;
    case 2: p[at] = (uint8_t)(p[at] + below(7) - 3); break;
    case 3: if (n - at >= 4) be(p + at, (uint64_t)odd(n), 4); break;
    case 4: if (n - at >= 4) le(p + at, (uint64_t)odd(n), 4); break;
    case 5: /* bytes go */
        k = 1 + below(n - at < 8 ? n - at : 8);
        memmove(p + at, p + at + k, n - at - k);
        o->n -= k;
        break;
    case 6: /* bytes come */
        k = 1 + below(8);
        if (o->cap - o->n < k) break;
        memmove(p + at + k, p + at, n - at);
        for (uint32_t i = 0; i < k; i++) p[at + i] = chance(40) ? (chance(50) ? 0 : 0xFF) : (uint8_t)rnd();
        o->n += k;
        break;
    case 7: o->n -= chance(50) ? below(n < 16 ? n : 16) : below(n); break;
    default: /* a run is repeated elsewhere */
        k = 1 + below(n - at < 32 ? n - at : 32);
        memmove(p + below(n - k + 1), p + at, k);
    }
}

/* ---- records of magic 2 ---- */

static int varint(const uint8_t *p, uint32_t n, uint32_t *at, int64_t *value)
{
    uint64_t v = 0;
    for (int i = 0; i < 10 && *at < n; i++) {
        uint8_t b = p[(*at)++];
        v |= (uint64_t)(b & 0x7F) << (7 * i);
        if (b < 0x80) { *value = (int64_t)(v >> 1) ^ -(int64_t)(v & 1); return 1; }
    }
    return 0;
}

static uint32_t field(Field *f, uint32_t have, const uint8_t *p, uint32_t n, uint32_t *at, int kind, uint32_t record, int64_t *value)
{
    uint32_t start = *at;
    if (!varint(p, n, at, value)) return 0;
    if (have < MAX_FIELDS) f[have] = (Field){start, *at - start, record, kind, *value};
    return 1;
}

/* Fields and starts of all records that parse. */
static uint32_t parse(const uint8_t *p, uint32_t n, Field *f, uint32_t *starts, uint32_t *records)
{
    uint32_t at = 0, have = 0;
    int64_t v, headers;
    *records = 0;
    while (at < n && *records < MAX_RECORDS && have + 16 < MAX_FIELDS) {
        uint32_t record = *records, begin = at;
#define FIELD(kind) do { if (!field(f, have, p, n, &at, kind, record, &v)) return have; have++; } while (0)
#define BYTES() do { if (v > 0) { if ((uint64_t)v > n - at) return have; at += (uint32_t)v; } } while (0)
        starts[record] = begin;
        FIELD(LENGTH);
        if (at == n) return have;
        f[have++] = (Field){at, 1, record, ATTRIBUTES, p[at]};
        at++;
        FIELD(TIMESTAMP);
        FIELD(OFFSET);
        FIELD(KEY_LENGTH); BYTES();
        FIELD(VALUE_LENGTH); BYTES();
        FIELD(HEADERS);
        headers = v;
        for (int64_t i = 0; i < headers && have + 16 < MAX_FIELDS; i++) {
            FIELD(HEADER_KEY); BYTES();
            FIELD(HEADER_VALUE); BYTES();
        }
        (*records)++;
    }
    return have;
}

static void put_odd_varint(Out *o, int64_t v)
{
    uint64_t z = ((uint64_t)v << 1) ^ (uint64_t)(v >> 63);
    uint32_t kind = below(20);
    if (kind > 3) { put_unsigned(o, z); return; }
    if (kind == 0) { for (uint32_t i = below(11); i; i--) put_byte(o, 0x80 | (int)(rnd() & 0x7F)); return; } /* never ends */
    if (kind == 1) { for (uint32_t i = 4 + below(7); i; i--) put_byte(o, 0xFF); put_byte(o, below(0x80)); return; } /* too long */
    for (; z >= 0x80; z >>= 7) put_byte(o, (int)(z | 0x80) & 0xFF); /* padded */
    put_byte(o, (int)z | 0x80);
    for (uint32_t i = below(4); i; i--) put_byte(o, 0x80);
    put_byte(o, 0);
}

/* One field is written anew; its bytes may follow it, and the record's length may be adjusted. */
static void change_field(Out *o, const uint8_t *p, uint32_t n, const Field *f, uint32_t fields)
{
    const Field *one = f + below(fields), *length = one;
    uint8_t buffer[WORK];
    Out tail = {buffer, 0, sizeof buffer};
    uint32_t after = one->at + one->size, old = 0;
    int64_t value = odd(one->value);
    while (length->kind != LENGTH || length->record != one->record) length--;
    if (one->kind == ATTRIBUTES) {
        put_byte(&tail, (int)value);
    } else {
        put_odd_varint(&tail, value);
        if (one->kind != LENGTH && one->kind != TIMESTAMP && one->kind != OFFSET && one->kind != HEADERS && one->value > 0
            && one->value <= (int64_t)(n - after) && chance(50)) {
            old = (uint32_t)one->value; /* the bytes are as long as the new length says, where that can be */
            if (value >= -1 && value < 2048) {
                uint32_t keep = value < (int64_t)old ? (value > 0 ? (uint32_t)value : 0) : old;
                put(&tail, p + after, keep);
                if (value > (int64_t)old) put_noise(&tail, (uint32_t)value - old);
                after += old;
            }
        }
    }
    if (one == length || !chance(75)) {
        put(o, p, one->at);
    } else {
        int64_t body = length->value + (int64_t)tail.n - (int64_t)(after - one->at);
        put(o, p, length->at);
        put_unsigned(o, ((uint64_t)body << 1) ^ (uint64_t)(body >> 63));
        put(o, p + length->at + length->size, one->at - length->at - length->size);
    }
    put(o, tail.p, tail.n);
    put(o, p + after, n - after);
}

/* Records dropped, doubled, swapped; returns how many there are now. */
static uint32_t change_order(Out *o, const uint8_t *p, uint32_t n, const uint32_t *starts, uint32_t records)
{
    uint32_t order[MAX_RECORDS + 4], count = records, i, k;
    for (i = 0; i < records; i++) order[i] = i;
    switch (below(3)) {
    case 0: count = below(records); break;
    case 1: for (k = 1 + below(3); k; k--) order[count++] = below(records); break;
    default: i = below(records); k = below(records); order[i] = k; if (chance(50)) order[k] = i;
    }
    for (i = 0; i < count; i++) {
        uint32_t begin = starts[order[i]], end = order[i] + 1 < records ? starts[order[i] + 1] : n;
        put(o, p + begin, end - begin);
    }
    return count;
}

/* ---- streams, in stored blocks ---- */

static void put_gzip(Out *o, const uint8_t *p, uint32_t n, int first)
{
    static const uint8_t header[10] = {0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 0xFF};
    uint32_t start = o->n, at = 0, part;
    put(o, header, 10);
    if (chance(8)) {
        int flags = (int)below(32);
        o->p[start + 3] = (uint8_t)flags;
        if (flags & 4) { part = below(9); put_le(o, part, 2); put_noise(o, part); }
        if (flags & 8) { put_byte(o, 'n'); put_byte(o, 0); }
        if (flags & 16) { put_byte(o, 'c'); put_byte(o, 0); }
        if (flags & 2) put_le(o, crc_by(T_I, o->p + start, o->n - start) & 0xFFFF, 2);
    }
    (void)first;
    do {
        part = chance(85) ? n - at : below(n - at + 1);
        if (part > 65535) part = 65535;
        put_byte(o, at + part == n);
        put_le(o, part, 2);
        put_le(o, part ^ 0xFFFF, 2);
        put(o, p + at, part);
        at += part;
    } while (at < n);
    put_le(o, crc_by(T_I, p, n), 4);
    put_le(o, n, 4);
}

static void put_snappy_block(Out *o, const uint8_t *p, uint32_t n)
{
    uint32_t at = 0, part;
    put_unsigned(o, n);
    while (at < n) {
        part = 1 + below(chance(70) ? n - at : (n - at < 64 ? n - at : 64));
        if (at && part >= 4 && part <= 64 && memcmp(p + at, p + at - 1, part) == 0 && chance(80)) { put_byte(o, (int)((part - 1) << 2 | 2)); put_le(o, 1, 2); at += part; continue; }
        if (part <= 60) put_byte(o, (int)(part - 1) << 2);
        else if (part <= 256) { put_byte(o, 60 << 2); put_byte(o, (int)part - 1); }
        else { put_byte(o, 61 << 2); put_le(o, part - 1, 2); }
        put(o, p + at, part);
        at += part;
    }
}

static void put_snappy(Out *o, const uint8_t *p, uint32_t n, int first)
{
    static const uint8_t header[16] = {0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1};
    uint32_t at;
    if (first && chance(15)) { put_snappy_block(o, p, n); return; }
    if (first || chance(15)) put(o, header, 16);
    at = o->n;
    put_be(o, 0, 4);
    put_snappy_block(o, p, n);
    if (o->n - at >= 4) be(o->p + at, o->n - at - 4, 4);
}

static void put_lz4(Out *o, const uint8_t *p, uint32_t n, int first)
{
    int flags = 0x60 | (chance(10) ? 4 : 0) | (chance(10) ? 8 : 0) | (chance(10) ? 16 : 0);
    uint32_t start = o->n + 4, at = 0, part;
    (void)first;
    put_le(o, 0x184D2204u, 4);
    put_byte(o, flags);
    put_byte(o, (int)(4 + below(4)) << 4);
    if (flags & 8) put_le(o, chance(80) ? n : (uint64_t)odd(n), 8);
    put_byte(o, (int)(xxh32(o->p + start, o->n - start) >> 8));
    while (at < n) {
        part = chance(80) ? n - at : below(n - at + 1);
        put_le(o, part | 0x80000000u, 4);
        put(o, p + at, part);
        if (flags & 16) put_le(o, xxh32(p + at, part), 4);
        at += part;
    }
    put_le(o, 0, 4);
    if (flags & 4) put_le(o, xxh32(p, n), 4);
}

static void put_zstd(Out *o, const uint8_t *p, uint32_t n, int first)
{
    uint32_t at = 0, part;
    (void)first;
    if (chance(5)) { part = below(12); put_le(o, 0x184D2A50u + below(16), 4); put_le(o, part, 4); put_noise(o, part); }
    put_le(o, 0xFD2FB528u, 4);
    switch (below(4)) {
    case 0: put_byte(o, 0xA0); put_le(o, n, 4); break;              /* single segment, size in 4 bytes */
    case 1: put_byte(o, 0x80); put_byte(o, (int)below(256)); put_le(o, n, 4); break;
    case 2: put_byte(o, 0xE0); put_le(o, chance(70) ? n : (uint64_t)odd(n), 8); break;
    default: put_byte(o, 0); put_byte(o, chance(80) ? (int)below(0x40) : (int)below(256));
    }
    do {
        part = chance(80) ? n - at : below(n - at + 1);
        put_le(o, (uint64_t)(at + part == n) | (uint64_t)part << 3, 3);
        put(o, p + at, part);
        at += part;
    } while (at < n);
}

static void put_stream(Out *o, int codec, const uint8_t *p, uint32_t n)
{
    static void (*const writers[5])(Out *, const uint8_t *, uint32_t, int) = {0, put_gzip, put_snappy, put_lz4, put_zstd};
    uint32_t from = o->n, at = 0, part;
    int first = 1;
    if (codec < 1 || codec > 4) { put(o, p, n); return; }
    do {
        part = chance(85) ? n - at : below(n - at + 1);
        writers[codec](o, p + at, part, first);
        at += part;
        first = 0;
    } while (at < n);
    if (chance(3)) writers[codec](o, p, 0, 0);
    if (chance(35)) for (uint32_t k = 1 + below(3); k; k--) damage(o, from);
    if (chance(4)) put_noise(o, 1 + below(24));
}

/* ---- batches ---- */

static void change_header(uint8_t *p, uint32_t n)
{
    static const struct { uint8_t at, size; } FIELDS[] = {{0, 8}, {8, 4}, {12, 4}, {16, 1}, {17, 4}, {21, 2}, {22, 1}, {22, 1}, {23, 4}, {23, 4},
        {27, 8}, {27, 8}, {35, 8}, {43, 8}, {51, 2}, {53, 4}, {57, 4}, {57, 4}};
    if (n < 61) return;
    for (uint32_t k = 1 + below(2); k; k--) {
        uint32_t i = below(sizeof FIELDS / sizeof *FIELDS), at = FIELDS[i].at, size = FIELDS[i].size;
        if ((at == 8 || at == 16 || at == 17) && !chance(15)) continue; /* those end the story early */
        if (at == 22) p[22] = chance(70) ? (uint8_t)(p[22] ^ (1 << below(8))) : (uint8_t)rnd();
        else if (at == 57 || at == 23) { /* count and last delta, most often still in step */
            int64_t count = odd((int32_t)get32(p + 57));
            be(p + 57, (uint64_t)count, 4);
            if (chance(60)) be(p + 23, (uint64_t)(count - 1), 4);
        } else be(p + at, (uint64_t)odd((int32_t)get32(p + at)), (int)size);
    }
}

static void seal(uint8_t *p, uint32_t n)
{
    if (n < 17) return;
    if (chance(97)) be(p + 8, n - 12, 4);
    if (!chance(97)) return;
    if (p[16] == 2) { if (n > 21) be(p + 17, crc_by(T_C, p + 21, n - 21), 4); }
    else if (n > 16) be(p + 12, crc_by(T_I, p + 16, n - 16), 4);
}

static void batch_of_magic_2(Out *o, const uint8_t *p, uint32_t n)
{
    static uint8_t work[WORK], again[WORK];
    Field fields[MAX_FIELDS + 16];
    uint32_t starts[MAX_RECORDS + 1], records = 0, found, start = o->n;
    Out body = {work, 0, sizeof work}, other = {again, 0, sizeof again};
    int codec = p[22] & 7, count = (int)get32(p + 57);
    put(o, p, 61);
    if (codec == 0) {
        put(&body, p + 61, n - 61);
        for (uint32_t k = below(100) < 15 ? 0 : 1 + below(2); k; k--) {
            found = parse(body.p, body.n, fields, starts, &records);
            other.n = 0;
            if (found && chance(75)) {
                change_field(&other, body.p, body.n, fields, found);
            } else if (records && chance(75)) {
                uint32_t now = change_order(&other, body.p, body.n, starts, records);
                if (chance(80)) { count += (int)now - (int)records; be(o->p + start + 57, (uint32_t)count, 4); be(o->p + start + 23, (uint32_t)count - 1, 4); }
            } else {
                put(&other, body.p, body.n);
                damage(&other, 0);
            }
            Out swap = body; body = other; other = swap;
        }
        if (chance(55)) {
            codec = 1 + (int)below(4);
            o->p[start + 22] = (uint8_t)((o->p[start + 22] & ~7) | codec);
            put_stream(o, codec, body.p, body.n);
            if (chance(2)) o->p[start + 22] = (uint8_t)((o->p[start + 22] & ~7) | below(8));
        } else {
            put(o, body.p, body.n);
        }
    } else {
        put(o, p + 61, n - 61);
        if (chance(90)) for (uint32_t k = 1 + below(3); k; k--) damage(o, start + 61);
        if (chance(4)) put_noise(o, 1 + below(24));
        if (chance(2)) o->p[start + 22] = (uint8_t)((o->p[start + 22] & ~7) | below(8));
    }
    if (chance(35)) change_header(o->p + start, o->n - start);
    seal(o->p + start, o->n - start);
}

/* Messages of magic 0 and 1: fields changed, each sealed again; then perhaps wrapped. */
static void messages(Out *o, const uint8_t *p, uint32_t n)
{
    static uint8_t work[WORK];
    Out set = {work, 0, sizeof work};
    uint32_t at = 0, start, size, last = 0, value;
    int magic = n > 16 ? p[16] & 1 : 0;
    while (n - at >= 26) {
        size = get32(p + at + 8);
        if (size < 14 || size > n - at - 12) break;
        start = set.n;
        put(&set, p + at, 12 + size);
        at += 12 + size;
        if (set.n - start < 26) break;
        last = start;
        uint8_t *m = set.p + start;
        value = m[16] == 0 ? 18 : 26;
        if (chance(40)) {
            switch (below(8)) {
            case 0: be(m, (uint64_t)odd(0), 8); break;
            case 1: m[17] ^= (uint8_t)(1 << below(8)); break;
            case 2: if (value == 26) be(m + 18, (uint64_t)odd(0), 8); break;
            case 3: if (set.n - start >= value + 4) be(m + value, (uint64_t)odd(get32(m + value)), 4); break;
            case 4: m[16] = (uint8_t)(chance(80) ? m[16] ^ 1 : rnd()); break;
            case 5: damage(&set, start + 18 < set.n ? start + 18 : start); break;
            case 6: if (set.n - start >= value + 8) { uint32_t key = get32(m + value); uint32_t v = value + 4 + (key < 4096 ? key : 0);
                if (set.n - start >= v + 4) be(m + v, (uint64_t)odd(get32(m + v)), 4); } break;
            default: if (chance(50)) { put(&set, m, set.n - start); }
            }
        }
        if (set.n - start < 26) continue;
        if (m[17] & 7 && chance(60) && set.n - start > value + 8) damage(&set, start + value + 8); /* a wrapper's value */
        if (set.n < start + 26) continue;
        if (m[17] & 7 && chance(85) && set.n - start > value + 8) be(m + value + 4, set.n - start - value - 8, 4);
        seal(m, set.n - start);
    }
    if (n - at && chance(10)) put(&set, p + at, n - at);
    if (chance(45)) {
        int codec = 1 + (int)below(chance(95) ? 3 : 7), ts = magic ? 8 : 0;
        start = o->n;
        put_be(o, chance(60) && last + 8 <= set.n ? (uint64_t)get32(set.p + last + 4) : (uint64_t)odd(3), 8);
        put_be(o, 0, 8);
        put_byte(o, magic);
        put_byte(o, codec | (magic && chance(10) ? 8 : 0));
        if (ts) put_be(o, chance(70) ? 1000 : (uint64_t)odd(0), 8);
        put_be(o, 0xFFFFFFFFu, 4);
        value = o->n;
        put_be(o, 0, 4);
        put_stream(o, codec, set.p, set.n);
        if (o->n - value >= 4) be(o->p + value, chance(97) ? o->n - value - 4 : (uint64_t)odd(o->n), 4);
        seal(o->p + start, o->n - start);
    } else {
        put(o, set.p, set.n);
    }
}

/* ---- what is called ---- */

static void one(Out *o, const uint8_t *p, uint32_t n)
{
    if (n >= 61 && p[16] == 2) batch_of_magic_2(o, p, n);
    else if (n >= 26 && p[16] < 2) messages(o, p, n);
    else { put(o, p, n); damage(o, 0); }
}

/* For the reference validator, whose own checksums are plain Python: 'C' CRC-32C, 'x' xxHash of 32 bits. */
uint32_t hostile_checksum(int kind, const uint8_t *p, uint32_t n)
{
    tables();
    return kind == 'x' ? xxh32(p, n) : crc_by(T_C, p, n);
}

/* One hostile case of at most `capacity` (up to 16384) bytes; its size. seeds: blob[offsets[i]:offsets[i + 1]] */
uint32_t hostile_case(uint64_t *state, const uint8_t *blob, const uint32_t *offsets, uint32_t seeds, uint8_t *out, uint32_t capacity)
{
    Out o = {out, 0, capacity};
    uint32_t i;
    tables();
    state_ = *state;
    i = below(seeds);
    one(&o, blob + offsets[i], offsets[i + 1] - offsets[i]);
    if (chance(4)) { i = below(seeds); one(&o, blob + offsets[i], offsets[i + 1] - offsets[i]); }
    if (chance(3)) put_noise(&o, 1 + below(40));
    if (chance(3)) o.n = below(o.n + 1);
    if (chance(2)) damage(&o, 0);
    *state = state_;
    return o.n;
}

/* A raw stream (deflate, a snappy block) with some damage. */
uint32_t hostile_stream(uint64_t *state, const uint8_t *blob, const uint32_t *offsets, uint32_t seeds, uint8_t *out, uint32_t capacity)
{
    Out o = {out, 0, capacity};
    uint32_t i;
    state_ = *state;
    i = below(seeds);
    put(&o, blob + offsets[i], offsets[i + 1] - offsets[i]);
    for (uint32_t k = below(4); k; k--) damage(&o, 0);
    *state = state_;
    return o.n;
}

/* `slots` cases, each ending where its slot ends: a page that must not be read follows it. */
void hostile_slots(uint64_t *state, const uint8_t *blob, const uint32_t *offsets, uint32_t seeds, uint8_t *region, uint32_t slot, uint32_t stride, uint32_t slots, int64_t *ranges)
{
    static uint8_t work[WORK];
    for (uint32_t i = 0; i < slots; i++) {
        uint32_t n = hostile_case(state, blob, offsets, seeds, work, slot < WORK ? slot : WORK);
        int64_t start = (int64_t)i * stride + slot - n;
        memcpy(region + start, work, n);
        ranges[2 * i] = start;
        ranges[2 * i + 1] = n;
    }
}
