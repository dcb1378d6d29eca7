"""A block of columns: one allocation, in which each stored column is a run of values.

The block holds ``capacity`` rows, of which ``count`` are filled. Runs follow each other in the
layout's order, widest type first, and ``capacity`` is a multiple of 8: so each run is aligned. A
subclass names the columns, fills the runs through a struct of pointers, and computes what is
derived from them. It overrides the methods that block.pxd lists.
"""

cimport cython
from cpython.buffer cimport Py_buffer, PyBuffer_FillInfo
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.number cimport PyNumber_AsSsize_t
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy

import numpy

from batchval.core.batches.arrow cimport ArrowColumn, column_of, struct_of
from batchval.errors import BatchvalError

cdef enum:
    ROWS_AT_ONCE = 1024  # rows that an iteration turns into Python objects at a time
    SHOWN_ROWS = 5  # of each end, in a notebook


@cython.final
cdef class Layout:
    """Names and types of the stored columns, widest type first, and the version of their meaning.

    ``fields``: pairs of a name and a numpy type, for example ``("position", "<i8")``.
    """

    def __cinit__(self, tuple fields, int schema_version):
        cdef size_t i
        self.names = tuple([name for name, _ in fields])
        self.dtypes = tuple([numpy.dtype(kind) for _, kind in fields])
        self.places = {name: i for i, name in enumerate(self.names)}
        self.schema_version = schema_version
        self.widths = <size_t *>calloc(len(fields), sizeof(size_t))
        if self.widths is NULL:
            raise MemoryError()
        for i in range(<size_t>len(fields)):
            self.widths[i] = self.dtypes[i].itemsize

    def __dealloc__(self):
        free(self.widths)


cdef Layout NO_COLUMNS = Layout((), 0)


cdef class ColumnBlock:
    """Rows as columns: ``block["name"]`` is a numpy array, ``block[3]`` a row, iteration gives
    rows.

    A stored column is a read-only array over the block itself; a derived one is computed when it is
    first asked for.
    ``len()`` counts rows. Blocks compare by value, and can be copied and pickled. Every consumer of
    Arrow's PyCapsule interface reads them: ``pyarrow.table(block)``, ``polars.DataFrame(block)``,
    ``duckdb.sql("from block")``.
    """

    __class_getitem__ = classmethod(type(list[int]))

    def __cinit__(self):
        """Check nothing: a subclass sets layout, widths, width and pointers in its own
        ``__cinit__``.
        """
        self.layout = NO_COLUMNS

    def __dealloc__(self):
        free(self.block)

    # ---- memory ----------------------------------------------------------------------------------

    cdef bint reserve(self, size_t count) noexcept nogil:
        """Reserve memory for ``count`` rows. Return False without memory."""
        # Locals: the compiler must assume that memcpy and the pointers write to this object.
        cdef size_t columns = self.width, held = self.capacity, filled = self.count
        cdef size_t size = 0, i, old, new, capacity = held * 2
        cdef const size_t *widths = self.widths
        cdef uint8_t **pointers = self.pointers
        cdef uint8_t *block
        cdef uint8_t *before = self.block
        if count <= held:
            return True
        if capacity < count:
            capacity = count
        capacity = (capacity + 7) & ~<size_t>7
        for i in range(columns):
            size += widths[i]
        block = <uint8_t *>malloc(size * capacity)
        if block is NULL:
            return False
        old = 0
        new = 0
        for i in range(columns):
            if filled:
                memcpy(block + new, before + old, filled * widths[i])
            pointers[i] = block + new
            old += widths[i] * held
            new += widths[i] * capacity
        free(before)
        self.block = block
        self.capacity = capacity
        return True

    def __getbuffer__(self, Py_buffer *view, int flags):
        """Export the whole block, read-only: columns are runs of it."""
        cdef size_t size = 0, i
        for i in range(self.width):
            size += self.widths[i] * self.capacity
        PyBuffer_FillInfo(view, self,
                self.block if self.block is not NULL else <uint8_t *>&self.capacity, size, 1,
                flags)
        self.exports += 1

    def __releasebuffer__(self, Py_buffer *view):
        self.exports -= 1

    cdef void renew(self) noexcept:
        """Forget derived columns: the rows have changed."""
        self.cache = None

    # ---- columns ---------------------------------------------------------------------------------

    cdef tuple column_names(self):
        """Return the names that ``names``, rows and comparison go by."""
        return self.layout.names[:self.width]

    cdef object derived(self, str name):
        """Compute a column that is not stored. KeyError for a name that no column has."""
        raise KeyError(name)

    cdef object stored(self, str name):
        """Return a stored column as an array over the block; None for a name that no stored column
        has.

        The array is not kept: it holds this object, and numpy arrays take no part in garbage
        collection.
        """
        cdef size_t offset = 0, i, place
        found = self.layout.places.get(name)
        if found is None or <size_t>found >= self.width:
            return None
        place = found
        if self.count == 0:
            return numpy.empty(0, self.layout.dtypes[place])
        for i in range(place):
            offset += self.widths[i] * self.capacity
        return numpy.frombuffer(self, self.layout.dtypes[place], self.count, offset)

    cdef object column(self, str name):
        column = self.stored(name)
        if column is not None:
            return column
        if self.cache is None:
            self.cache = {}
        column = self.cache.get(name)
        if column is None:
            column = self.cache[name] = self.derived(name)
        return column

    @property
    def names(self):
        """Return the names of the columns, in the order of a row."""
        return self.column_names()

    @property
    def schema_version(self):
        """Return the version of the columns' names and meaning."""
        return self.layout.schema_version

    def keys(self):
        """Return the names of the columns: ``dict(block)`` is a dict of arrays."""
        return self.column_names()

    def __len__(self):
        return self.count

    def __contains__(self, item):
        """Return whether there is a column of this name; for anything but text, whether a row
        equals it.
        """
        if isinstance(item, str):
            try:
                self.column(item)
            except KeyError:
                return False
            return True
        for row in self:
            if row == item:
                return True
        return False

    def __getitem__(self, key):
        """Return a column for a name, a row for a number, a list of rows for a slice.

        Numbers may be negative. KeyError for a name that no column has, IndexError for a row that
        is not there.
        """
        cdef Py_ssize_t i
        if isinstance(key, str):
            return self.column(key)
        if isinstance(key, slice):
            rows = range(self.count)[key]
            if rows.step > 0:
                return self.rows_between(rows.start, rows.stop, rows.step)
            rows = rows[::-1]
            return self.rows_between(rows.start, rows.stop, rows.step)[::-1]
        try:
            i = PyNumber_AsSsize_t(key, IndexError)
        except TypeError:
            raise TypeError("expected the name of a column, the number of a row or a slice of rows,"
                    f" not {key!r}") from None
        if i < 0:
            i += self.count
        if not 0 <= i < self.count:
            raise IndexError(f"row {key} of {self.count}")
        return self.rows_between(i, i + 1, 1)[0]

    # ---- rows ------------------------------------------------------------------------------------

    cdef object row_type(self):
        """Return the class of a row: a named tuple whose fields are what row_columns() returns."""
        raise NotImplementedError

    cdef list row_columns(self, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t step):
        """Return a list of Python values for each field of a row: those of rows start, start +
        step, ... below stop.
        """
        return [self.column(name)[start:stop:step].tolist() for name in self.row_type()._fields]

    cdef list rows_between(self, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t step):
        return list(map(self.row_type()._make, zip(*self.row_columns(start, stop, step))))

    def __iter__(self):
        """Yield the rows as named tuples of Python values."""
        cdef Py_ssize_t start = 0
        while start < self.count:  # which keep() and extend() may change meanwhile
            yield from self.rows_between(start, min(start + ROWS_AT_ONCE, self.count), 1)
            start += ROWS_AT_ONCE

    # ---- showing ---------------------------------------------------------------------------------

    def __repr__(self):
        return f"<{type(self).__name__} {self.count} rows, {len(self.column_names())} columns>"

    def _repr_html_(self):
        """Return the first and last rows as an HTML table, for notebooks."""
        names = self.row_type()._fields
        head = self[:SHOWN_ROWS] if self.count > 2 * SHOWN_ROWS else self[:]
        tail = self[-SHOWN_ROWS:] if self.count > 2 * SHOWN_ROWS else []
        lines = [html_row(row) for row in head]
        if tail:
            lines.append(f'<tr><td colspan="{len(names)}">&hellip;</td></tr>')
            lines += [html_row(row) for row in tail]
        header = "".join([f"<th>{escaped(name)}</th>" for name in names])
        return (f'<div style="overflow-x:auto"><table><caption>{escaped(repr(self))}</caption>'
                f"<thead><tr>{header}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>")

    # ---- Arrow -----------------------------------------------------------------------------------

    cdef tuple arrow_names(self):
        """Return the names of the columns that Arrow consumers see."""
        return self.column_names()

    cdef ArrowColumn arrow_column(self, str name):
        return column_of(self.column(name))

    def __arrow_c_schema__(self):
        """Return the columns' names and types as a PyCapsule that holds an ArrowSchema."""
        return arrow_struct(self).__arrow_c_schema__()

    def __arrow_c_array__(self, requested_schema=None):
        """Return schema and columns as PyCapsules: a struct, which is a record batch. Stored
        numbers are shared.

        ``requested_schema`` is ignored, as the protocol allows: the consumer casts.
        """
        return arrow_struct(self).__arrow_c_array__()

    def __arrow_c_stream__(self, requested_schema=None):
        """Return a PyCapsule that holds a stream of one record batch."""
        return arrow_struct(self).__arrow_c_stream__()

    def to_arrow(self):
        """Return a pyarrow RecordBatch that shares this object's memory. Needs pyarrow."""
        import pyarrow

        return pyarrow.record_batch(self)

    def to_pandas(self):
        """Return a pandas DataFrame. Needs pandas and pyarrow."""
        return self.to_arrow().to_pandas()

    # ---- copies ----------------------------------------------------------------------------------

    cdef void settle(self) noexcept:
        """Clear values without a meaning, which nobody wrote, before they are pickled."""

    cdef object write_state(self):
        """Return plain values that are to be pickled and compared with the rows."""
        return None

    cdef int read_state(self, state) except -1:
        """Take what write_state() returned; the rows are there. BatchvalError if the two do not
        fit.
        """
        return 0

    cdef int share(self, ColumnBlock source) except -1:
        """Take what a copy in the same process shares with its source and a pickle does not
        hold.
        """
        return 0

    def __reduce__(self):
        return _restored, (type(self), packed_block(self))

    def __copy__(self):
        cdef ColumnBlock other = _restored(type(self), packed_block(self))
        other.share(self)
        return other

    def __deepcopy__(self, memo):
        return self.__copy__()

    def __eq__(self, other):
        """Return whether the other is of the same class, with equal columns and state."""
        cdef size_t i
        cdef ColumnBlock block
        if type(other) is not type(self):
            return NotImplemented
        block = other
        if self.count != block.count or self.column_names() != block.column_names():
            return False
        names = frozenset(self.column_names())  # what is derived follows from what is stored
        for i in range(min(self.width, block.width) if self.count else 0):
            if self.layout.names[i] in names and memcmp(self.pointers[i], block.pointers[i],
                    self.count * self.widths[i]):
                return False
        return self.write_state() == block.write_state()


cdef str escaped(str text):
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return text.replace('"', "&quot;")


cdef str html_row(row):
    return f"<tr>{''.join([f'<td>{escaped(str(value))}</td>' for value in row])}</tr>"


cdef ArrowColumn arrow_struct(ColumnBlock block):
    names = block.arrow_names()
    columns = [block.arrow_column(name) for name in names]
    metadata = {"schema_version": str(block.layout.schema_version)}
    return struct_of(names, columns, block.count, metadata)


# Pickling: the version, the names of the stored columns, count, their runs of `count` rows, and the
# subclass's state.

cdef tuple packed_block(ColumnBlock block):
    cdef size_t size = 0, i
    cdef bytes data
    cdef uint8_t *p
    block.settle()
    for i in range(block.width):
        size += block.widths[i] * block.count
    data = PyBytes_FromStringAndSize(NULL, size)
    p = <uint8_t *>PyBytes_AS_STRING(data)
    for i in range(block.width if block.count else 0):
        memcpy(p, block.pointers[i], block.widths[i] * block.count)
        p += block.widths[i] * block.count
    return (block.layout.schema_version, block.layout.names[:block.width], block.count, data,
            block.write_state())


def _restored(kind, tuple state):
    """Return a block of ``kind`` from what packed_block() wrote. BatchvalError if it was written by
    another version.
    """
    cdef ColumnBlock block = kind.__new__(kind)
    cdef size_t i, count, size, row = 0
    cdef const uint8_t *p
    cdef bytes data
    version, names, count, data, extra = state
    if version != block.layout.schema_version or names != block.layout.names[:len(names)]:
        raise BatchvalError(f"cannot restore {kind.__name__} of schema version {version} with the"
                f" columns {', '.join(names)}: another version of batchval wrote them")
    block.width = len(names)
    for i in range(block.width):
        row += block.widths[i]
    size = len(data)
    if (count and not row) or (row and size // row != count) or size != count * row:
        raise BatchvalError(f"cannot restore {kind.__name__}: {size} bytes are not {count} rows of"
                f" {row} bytes")
    if not block.reserve(count):
        raise MemoryError()
    p = data
    for i in range(block.width if count else 0):
        memcpy(block.pointers[i], p, block.widths[i] * count)
        p += block.widths[i] * count
    block.count = count
    block.read_state(extra)
    return block
