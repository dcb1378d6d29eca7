"""Structs of messages, read and written field by field: ``message_class`` has the grammar of the
layouts, from which it makes the rows of a version.
"""

cimport cython
from cpython.object cimport Py_TYPE
from libc.stdint cimport int64_t, uint8_t

from batchval.protocol.cursor cimport close_tag, open_tag, read_uvarint
from batchval.protocol.primitives cimport Reader, Writer

from batchval.protocol.errors import ProtocolError

cdef extern from *:
    object PyType_GenericAlloc(type kind, Py_ssize_t items)

cdef enum Kind:
    BOOL
    INT8
    INT16
    INT32
    INT64
    UUID
    STRING
    NULLABLE_STRING
    BYTES
    RECORDS
    NULLABLE_RECORDS
    STRUCT

_KINDS = {
    "version": INT32, "bool": BOOL, "int8": INT8, "int16": INT16, "int32": INT32, "int64": INT64, "uuid": UUID,
    "string": STRING, "bytes": BYTES, "records": RECORDS,
}
_NULLABLE = {STRING: NULLABLE_STRING, RECORDS: NULLABLE_RECORDS}


@cython.final
cdef class _Step:
    """A field in one version."""

    cdef str name  # Kafka's
    cdef object slot  # the member descriptor
    cdef object default
    cdef object factory  # of the default; None: the default is a value
    cdef int kind
    cdef bint array
    cdef bint carried  # this version has the field
    cdef bint needed  # else its value must be the default
    cdef bint by_truth  # a value is the default where it is false
    cdef bint nullable  # an array that may be null here
    cdef bint null_elsewhere  # an array that may be null in other versions only
    cdef int64_t tag  # -1: not a tagged field
    cdef _Plan plan  # of a struct

    cdef object fresh(self):
        if self.factory is None:
            return self.default
        if self.array:
            return []
        return self.plan.fresh()

    cdef bint is_other(self, object value) except -1:
        """Return whether a value differs from the default."""
        if value is self.default:
            return False
        if self.by_truth:
            return True if value else False
        if self.factory is not None:
            return value != self.factory()
        if self.default is True:
            return not value
        return self.default is None or value != self.default


@cython.final
cdef class _Plan:
    """A struct in one version."""

    cdef type kind
    cdef object unknown  # the member descriptor of unknown_tagged_fields
    cdef int version
    cdef list plain   # steps that are read or written, or must have the default
    cdef list tagged  # in the order of their tags
    cdef list preset  # steps that are set to the default before anything is read

    cdef object read(self, type kind, Reader r):
        cdef _Step step
        it = PyType_GenericAlloc(kind, 0)
        for step in self.preset:
            put(step.slot, it, step.fresh())
        for step in self.plain:
            put(step.slot, it, read_value(step, r) if step.carried else step.fresh())
        if self.tagged:
            self.read_tags(it, r)
        else:
            put(self.unknown, it, r.unknown_tags())
        return it

    cdef object fresh(self):
        """Return an object with the defaults alone."""
        cdef _Step step
        it = PyType_GenericAlloc(self.kind, 0)
        for step in self.preset:
            put(step.slot, it, step.fresh())
        for step in self.plain:
            put(step.slot, it, step.fresh())
        put(self.unknown, it, ())
        return it

    cdef int read_tags(self, object it, Reader r) except -1:
        cdef int64_t count = read_uvarint(&r.c) if r.c.flexible else 0, tag, size_at, _i
        cdef const uint8_t *outer
        cdef list unknown = []
        cdef _Step step
        r.check()
        for _i in range(count):
            outer = open_tag(&r.c, &tag, &size_at)
            r.check()
            for step in self.tagged:
                if step.tag == tag and step.carried:
                    put(step.slot, it, read_value(step, r))
                    break
            else:
                unknown.append((tag, r.rest()))
            close_tag(&r.c, outer)
            r.check()
        put(self.unknown, it, tuple(unknown))
        return 0

    cdef int write(self, object it, Writer w) except -1:
        cdef _Step step
        cdef Writer t
        cdef list tags
        for step in self.plain:
            value = get(step.slot, it)
            if step.carried:
                write_value(step, value, w, self.version)
            elif step.is_other(value):
                raise absent(step.name, self.version)
        unknown = get(self.unknown, it)
        if not self.tagged:
            w.tags(unknown)
            return 0
        tags = list(unknown)
        for step in self.tagged:
            if not step.carried:
                continue
            value = get(step.slot, it)
            if step.is_other(value):
                t = Writer(True)
                write_value(step, value, t, self.version)
                tags.append((step.tag, t.getvalue()))
        w.tags(tags)
        return 0


cdef inline object get(object slot, object it):
    return Py_TYPE(slot).tp_descr_get(slot, it, type(it))


cdef inline int put(object slot, object it, object value) except -1:
    Py_TYPE(slot).tp_descr_set(slot, it, value)
    return 0


def absent(name, version):
    """Return the error for a value that a version has no field for."""
    return ProtocolError(f"version {version} cannot carry {name}")


cdef object read_value(_Step step, Reader r):
    cdef int64_t count, _i
    cdef list found
    if not step.array:
        return read_one(step, r)
    if step.kind == INT32 and not step.nullable:
        return r.int32_array()
    count = r.nullable_count() if step.nullable else r.count()
    if count < 0:
        return None
    found = []
    for _i in range(count):
        found.append(read_one(step, r))
    return found


cdef object read_one(_Step step, Reader r):
    if step.kind == INT32:
        return r.int32()
    if step.kind == INT64:
        return r.int64()
    if step.kind == INT16:
        return r.int16()
    if step.kind == STRUCT:
        return step.plan.read(step.plan.kind, r)
    if step.kind == STRING:
        return r.string()
    if step.kind == NULLABLE_STRING:
        return r.nullable_string()
    if step.kind == INT8:
        return r.int8()
    if step.kind == BOOL:
        return r.boolean()
    if step.kind == UUID:
        return r.uuid()
    if step.kind == BYTES:
        return r.data()
    if step.kind == RECORDS:
        return r.records()
    return r.nullable_records()


cdef int write_value(_Step step, object value, Writer w, int version) except -1:
    if not step.array:
        return write_one(step, value, w)
    if value is None and step.null_elsewhere:
        raise absent(f"{step.name} null", version)
    if value is None and step.nullable:
        w.length(-1, 4)
        return 0
    w.length(len(value), 4)
    for one in value:
        write_one(step, one, w)
    return 0


cdef int write_one(_Step step, object value, Writer w) except -1:
    if step.kind == INT32:
        w.int32(value)
    elif step.kind == INT64:
        w.int64(value)
    elif step.kind == INT16:
        w.int16(value)
    elif step.kind == STRUCT:
        if type(value) is step.plan.kind:
            step.plan.write(value, w)
        else:
            value.write(w, step.plan.version)
    elif step.kind == STRING:
        w.string(value)
    elif step.kind == NULLABLE_STRING:
        w.nullable_string(value)
    elif step.kind == INT8:
        w.int8(value)
    elif step.kind == BOOL:
        w.boolean(value)
    elif step.kind == UUID:
        w.uuid(value)
    elif step.kind == BYTES:
        w.data(value)
    elif step.kind == RECORDS:
        w.records(value)
    else:
        w.nullable_records(value)
    return 0


@cython.final
cdef class StructLayout:
    """The layout of a message class: what each version of it reads and writes."""

    cdef type kind
    cdef readonly dict fields
    cdef object rows
    cdef dict plans  # by version

    def __init__(self, type kind not None, dict fields not None, rows not None):
        """``fields``: for each name the ``dataclasses.Field``. ``rows``: returns those of a version,
        one for each field that has a place: the arguments of ``_step``.
        """
        self.kind = kind
        self.fields = fields
        self.rows = rows
        self.plans = {}

    def read(self, type kind not None, Reader r not None, version):
        """Return an object of ``kind``, the class or a subclass, with the fields of this version.
        ProtocolError.
        """
        return self.plan(version).read(kind, r)

    def write(self, it, Writer w not None, version):
        """Write the fields of this version, in order."""
        self.plan(version).write(it, w)

    cdef _Plan plan(self, object version):
        cdef _Plan plan = self.plans.get(version)
        cdef _Step step
        if plan is not None:
            return plan
        plan = _Plan()
        plan.kind, plan.version = self.kind, version
        plan.unknown = self.kind.unknown_tagged_fields
        plan.plain, plan.tagged, plan.preset = [], [], []
        for row in self.rows(version):
            step = self._step(version, *row)
            if step.tag < 0 and (step.carried or step.needed):
                plan.plain.append(step)
                continue
            plan.preset.append(step)
            if step.tag >= 0:
                plan.tagged.append(step)
        plan.tagged.sort(key=_tag_of)
        self.plans[version] = plan
        return plan

    def _step(
        self, version, str name, str kafka_name, default, factory, int tag, str kind, bint array,
        bint carried, bint needed, bint nullable, bint null_elsewhere, StructLayout inner,
    ):
        """Return a field in one version; ``inner`` is the layout of its struct."""
        cdef _Step step = _Step()
        step.name = kafka_name
        step.slot = getattr(self.kind, name)
        step.default, step.factory, step.tag = default, factory, tag
        step.by_truth = factory is list or type(default) in (str, bytes, bool) and not default
        step.array, step.carried, step.needed = array, carried, needed
        step.nullable, step.null_elsewhere = nullable, null_elsewhere
        if inner is None:
            step.kind = _KINDS[kind]
            if nullable and not array:
                step.kind = _NULLABLE[step.kind]
            return step
        step.kind = STRUCT
        if carried or not array:
            step.plan = inner.plan(version)
        return step


def _tag_of(_Step step not None):
    return step.tag
