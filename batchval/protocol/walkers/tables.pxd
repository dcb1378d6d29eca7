"""Rows that a walk fills: int32 positions in a frame (which is never larger), one table a kind of
struct.
"""

from libc.stdint cimport int32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset

from batchval.protocol.cursor cimport Cursor, NO_MEMORY, TOO_MANY_ROWS, fail

cdef enum:
    TABLES = 4

cdef struct Table:
    int32_t *rows
    Py_ssize_t count
    Py_ssize_t capacity
    Py_ssize_t most  # rows that the walk may make; 0: as many as the message has

cdef struct Tables:
    Table tables[TABLES]
    int32_t tag_at   # of the tagged field that is being walked: its size
    int32_t tag_end


cdef inline void open_tables(Tables *t) noexcept nogil:
    memset(t, 0, sizeof(Tables))
    t.tag_at = t.tag_end = -1


cdef inline void close_tables(Tables *t) noexcept nogil:
    cdef int i
    for i in range(TABLES):
        free(t.tables[i].rows)
        t.tables[i].rows = NULL


cdef inline int32_t *new_row(Table *table, int columns, Cursor *c) noexcept nogil:
    """Append a row of -1. Rows are allocated one by one: no count in a message allocates any."""
    cdef int32_t *rows
    cdef Py_ssize_t capacity
    if table.most and table.count >= table.most:
        fail(c, TOO_MANY_ROWS)
        return NULL
    if table.count == table.capacity:
        capacity = 2 * table.capacity if table.capacity else 8
        rows = <int32_t *>realloc(table.rows, capacity * columns * sizeof(int32_t))
        if rows is NULL:
            fail(c, NO_MEMORY)
            return NULL
        table.rows = rows
        table.capacity = capacity
    rows = table.rows + table.count * columns
    table.count += 1
    memset(rows, 0xff, columns * sizeof(int32_t))
    return rows


cdef inline const int32_t *row_of(const Table *table, Py_ssize_t i, int columns) noexcept nogil:
    return table.rows + i * columns
