"""Replace brokers' addresses at the end of a Fetch response that comes in pieces: Fetch 16 to 18,
ShareFetch 1 and 2. ``fetch_layout`` has the steps of a walk up to the tail.

The tail is what may name addresses (KIP-951): the root's tagged fields, before which ShareFetch has
an array of NodeEndpoints. What is before the tail is passed on as it comes. The length of the frame
is passed on before the tail is known, so a rewritten tail has the size of the one that came.
"""

cimport cython
from cpython.buffer cimport Py_buffer, PyBuffer_Release
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from batchval.protocol.walkers.addresses cimport checked_host
from batchval.protocol.walkers.api_keys cimport FETCH, SHARE_FETCH
from batchval.protocol.cursor cimport (
    MAX_STRING, Cursor, close_tag, not_null, open_cursor, open_tag, put_int32, put_uvarint,
    read_count, read_int32, read_uvarint, skip_string, skip_tags, string_length, uvarint_size,
)
from batchval.protocol.primitives cimport explained, take_buffer
from batchval.protocol.walkers.fetch_layout cimport (
    ARRAY, BYTES, END, LENGTH, STRING, TAGS, TAIL, fetch_response_steps,
    share_fetch_response_steps,
)

from batchval.protocol import apis
from batchval.protocol.walkers.addresses import check_brokers
from batchval.protocol.errors import ProtocolError

#: API keys whose responses FetchTail walks, from the first version that names addresses.
WITH_TAIL = frozenset({FETCH, SHARE_FETCH})

cdef enum:
    STEPS = 25   # of a response at most
    DEPTH = 3    # arrays within arrays
    NULLABLE = 1
    MALFORMED = -1
    NODE_ENDPOINTS = 0  # the tag
    PADDING_TAG = 127   # the largest of one byte
    MAX_UVARINT_BYTES = 5

cdef struct Step:
    int kind
    int argument        # as in fetch_layout; of ARRAY: the step after its END, of END: the first
    bint nullable

cdef struct Walk:
    const Step *steps
    int step            # the next one, or the one being read
    int64_t left        # bytes of the frame after those that are passed and to be passed over
    int64_t to_pass     # bytes to pass over before the next step
    uint64_t value      # of the number being read
    int shift           # its bits so far
    int64_t tag_numbers  # uvarints of tagged fields still to read: two a field
    int64_t elements[DEPTH]  # still to come of each open array
    int depth

cdef Step FETCH_STEPS[STEPS]
cdef Step SHARE_FETCH_STEPS[STEPS]


cdef int lay_out(Step *steps, list rows) except -1:
    """Fill in a response's steps from (kind, argument) rows, and where arrays begin and end."""
    cdef list begun = []
    cdef int n, first
    if len(rows) > STEPS:
        raise ValueError(f"{len(rows)} steps: at most {STEPS} are possible")
    for n, (kind, argument) in enumerate(rows):
        steps[n].kind = kind
        steps[n].argument = argument
        steps[n].nullable = kind != BYTES and argument == NULLABLE
        if kind == ARRAY:
            begun.append(n)
            if len(begun) > DEPTH:
                raise ValueError(f"more than {DEPTH} arrays within each other")
        elif kind == END:
            first = begun.pop()
            steps[n].argument = first + 1
            steps[first].argument = n + 1
    return 0


lay_out(FETCH_STEPS, fetch_response_steps())
lay_out(SHARE_FETCH_STEPS, share_fetch_response_steps())


cdef int check_version(int api_key, int api_version) except -1:
    if api_key not in WITH_TAIL:
        raise ProtocolError(
            f"responses with the key {api_key} have no tail of addresses: only Fetch ({FETCH}) and "
            f"ShareFetch ({SHARE_FETCH}) have")
    api = apis.APIS[api_key]
    if not api.addresses_from <= api_version <= api.max_version:
        raise ProtocolError(
            f"{api.name}Response version {api_version} has no known tail of addresses: versions "
            f"{api.addresses_from} to {api.max_version} have")
    return 0


# ---- the walk ------------------------------------------------------------------------------------

cdef inline bint pass_over(Walk *w, int64_t size) noexcept nogil:
    """Pass over the next bytes as they come. False: the frame has fewer."""
    if size > w.left:
        return False
    w.left -= size
    w.to_pass = size
    return True


cdef bint read_length(Walk *w, uint8_t one) noexcept nogil:
    """Read one byte of the frame's length. Return False if the length is negative."""
    w.value = w.value << 8 | one
    w.shift += 8
    if w.shift < 32:
        return True
    if w.value > 0x7fffffff:
        return False
    w.left = <int64_t>w.value
    w.value = 0
    w.shift = 0
    w.step += 1
    return True


cdef bint take_number(Walk *w, int64_t number) noexcept nogil:
    """Take the uvarint at the start of a step. Return False if it is not valid."""
    cdef const Step *step = &w.steps[w.step]
    if step.kind == TAGS:
        return take_tag_number(w, number)
    number -= 1  # 0 is null
    if number < 0 and not step.nullable:
        return False
    if step.kind != ARRAY:
        if step.kind == STRING and number > MAX_STRING:
            return False
        w.step += 1
        return number <= 0 or pass_over(w, number)
    if number > w.left:  # an element has a byte at least
        return False
    if number <= 0:
        w.step = step.argument
        return True
    w.elements[w.depth] = number
    w.depth += 1
    w.step += 1
    return True


cdef bint take_tag_number(Walk *w, int64_t number) noexcept nogil:
    """Take the count of tagged fields, a field's tag or its size."""
    cdef bint is_size = w.tag_numbers & 1
    if w.tag_numbers == 0:
        w.tag_numbers = 2 * number
    else:
        w.tag_numbers -= 1
        if is_size and not pass_over(w, number):
            return False
    if w.tag_numbers == 0:
        w.step += 1
    return True


cdef Py_ssize_t walk(Walk *w, const uint8_t *data, Py_ssize_t size) noexcept nogil:
    """Walk on over the next bytes. How many of them are before the tail; MALFORMED."""
    cdef Py_ssize_t at = 0
    cdef int64_t passed
    cdef const Step *step
    cdef uint8_t one
    while True:
        if w.to_pass:
            passed = min(w.to_pass, <int64_t>(size - at))
            w.to_pass -= passed
            at += passed
            if w.to_pass:
                return at
        step = &w.steps[w.step]
        if step.kind == BYTES:
            if not pass_over(w, step.argument):
                return MALFORMED
            w.step += 1
            continue
        if step.kind == END:
            w.elements[w.depth - 1] -= 1
            if w.elements[w.depth - 1]:
                w.step = step.argument
            else:
                w.depth -= 1
                w.step += 1
            continue
        if w.left == 0:  # the other steps, and the tail, begin with a byte at least
            return MALFORMED
        if step.kind == TAIL or at == size:
            return at
        one = data[at]
        at += 1
        w.left -= 1
        if step.kind == LENGTH:
            if not read_length(w, one):
                return MALFORMED
            continue
        w.value |= <uint64_t>(one & 0x7f) << w.shift
        w.shift += 7
        if one < 0x80:
            passed = <int64_t>w.value
            w.value = 0
            w.shift = 0
            if passed > 0xffffffffu or not take_number(w, passed):
                return MALFORMED
        elif w.shift == 35:
            return MALFORMED


@cython.final
cdef class FetchTail:
    """A walk over one Fetch or ShareFetch response that comes in pieces, up to its tail.

    Fetch from version 16 on, ShareFetch from 1 on. Keeps no bytes. Raises ProtocolError for other
    responses.
    """

    cdef Walk walk
    cdef bint malformed

    def __cinit__(self, int api_key, int api_version):
        check_version(api_key, api_version)
        self.walk.steps = &FETCH_STEPS[0] if api_key == FETCH else &SHARE_FETCH_STEPS[0]
        self.walk.left = 4  # the length itself

    @property
    def tail_size(self):
        """Return the bytes from the start of the tail to the end of the frame, at least 1.

        -1 before the tail has been reached.
        """
        if self.malformed or self.walk.steps[self.walk.step].kind != TAIL or self.walk.to_pass:
            return -1
        return self.walk.left

    def feed(self, piece):
        """Walk over the next bytes of the frame, its length first.

        Returns how many bytes at the start of ``piece`` are before the tail: they may be passed on.
        All others are the tail's. Returns -1, now and later, for what cannot be such a response.
        Raises ProtocolError for what is not a buffer of bytes.
        """
        cdef Py_buffer data
        cdef Py_ssize_t before
        if self.malformed:
            return MALFORMED
        take_buffer(piece, &data)
        before = walk(&self.walk, <const uint8_t *>data.buf, data.len)
        PyBuffer_Release(&data)
        self.malformed = before == MALFORMED
        return before


# ---- the tail ------------------------------------------------------------------------------------

cdef bytes coded(int64_t value, int size=0):
    """Return an encoded uvarint, of ``size`` bytes if that is more than it needs."""
    cdef uint8_t buffer[10]
    cdef int used = <int>(put_uvarint(buffer, <uint64_t>value) - buffer)
    while used < size:
        buffer[used - 1] |= 0x80
        buffer[used] = 0
        used += 1
    return buffer[:used]


cdef bytes new_endpoint(Cursor *c, object replace):
    """Read a NodeEndpoint; write it with the address that ``replace`` returns."""
    cdef int32_t node_id = read_int32(c), port
    cdef uint8_t number[4]
    cdef const uint8_t *host_at
    cdef const uint8_t *rest
    cdef int64_t size = string_length(c)
    cdef bytes host
    not_null(c, size)
    host_at = c.at
    if not c.wrong:
        c.at += size
    port = read_int32(c)
    rest = c.at
    skip_string(c, True)
    skip_tags(c)
    if c.wrong:
        raise explained(c)
    host = host_at[:size]
    if size:  # an empty one says that there is none
        old_host = PyUnicode_DecodeUTF8(<const char *>host_at, size, "replace")
        new_host, new_port = replace(node_id, old_host, port)
        host = checked_host(new_host, new_port)
        port = new_port
    put_int32(number, node_id)
    whole = number[:4] + coded(len(host) + 1) + host
    put_int32(number, port)
    return whole + number[:4] + rest[:c.at - rest]


cdef list new_endpoints(Cursor *c, object replace):
    """Read an array of NodeEndpoints; return each with its new address."""
    cdef int64_t count = read_count(c), _i
    cdef list found = []
    not_null(c, count)
    check_brokers(count)
    for _i in range(count):
        found.append(new_endpoint(c, replace))
    if c.wrong:
        raise explained(c)
    return found


cdef class _Tail:
    """A tail, taken apart. ``fields``: (tag, bytes, or a list of NodeEndpoints) in order."""

    cdef list array     # of NodeEndpoints before the tagged fields; None: there is none
    cdef list fields
    cdef bytes after    # what follows the tagged fields

    cdef list groups(self):
        """Return the lists of NodeEndpoints."""
        cdef list found = [] if self.array is None else [self.array]
        found += [content for _, content in self.fields if type(content) is list]
        return found

    cdef bytes written(self, Py_ssize_t size, Py_ssize_t kept):
        """Return the first ``kept`` NodeEndpoints and all else in ``size`` bytes, None if
        impossible.
        """
        cdef Py_ssize_t spare
        cdef bytes head = b""
        cdef list fields = []
        if self.array is not None:
            head = array_of(self.array[:kept])
            kept -= min(kept, len(self.array))
        for tag, content in self.fields:
            if type(content) is not list:
                fields.append((tag, content))
            elif kept or not content:
                fields.append((tag, array_of(content[:kept])))
                kept -= min(kept, len(content))
        size -= len(head) + len(self.after)
        spare = size - size_of(fields)
        if spare < 0:
            return None
        fields = padded(fields, spare)
        spare = size - size_of(fields)
        if spare + uvarint_size(len(fields)) > MAX_UVARINT_BYTES:
            return None  # more than 16,000 unknown fields: leave out an endpoint
        return head + written_fields(fields, spare) + self.after

    cdef bytes fitted(self, Py_ssize_t size, Py_ssize_t count):
        """Return the tail in ``size`` bytes, with as many of ``count`` NodeEndpoints as fit."""
        cdef Py_ssize_t fits = 0, too_many = count + 1, middle
        cdef bytes found = self.written(size, count)
        while found is None and fits + 1 < too_many:
            middle = (fits + too_many) // 2
            if self.written(size, middle) is None:
                too_many = middle
            else:
                fits = middle
        return self.written(size, fits) if found is None else found


cdef bytes array_of(list endpoints):
    return coded(len(endpoints) + 1) + b"".join(endpoints)


cdef Py_ssize_t size_of(list fields):
    """Return the size of tagged fields, their count included."""
    cdef Py_ssize_t size = uvarint_size(len(fields))
    for tag, content in fields:
        size += uvarint_size(tag) + uvarint_size(len(content)) + len(content)
    return size


cdef bytes written_fields(list fields, Py_ssize_t spare):
    """Return encoded tagged fields. Their count takes ``spare`` bytes more than needed, as
    allowed.
    """
    cdef list parts = [coded(len(fields), <int>(uvarint_size(len(fields)) + spare))]
    for tag, content in fields:
        parts += (coded(tag), coded(len(content)), content)
    return b"".join(parts)


cdef list padded(list fields, Py_ssize_t spare):
    """Return the fields, and an unknown one of zeros that takes as many of ``spare`` bytes as fit.

    Two or three bytes are the least that one takes, and some sizes are left out where the length of
    its length changes: the rest is at most three bytes.
    """
    cdef Py_ssize_t size, free, at
    cdef int64_t tag = PADDING_TAG
    cdef set taken = {number for number, _ in fields}
    while tag > NODE_ENDPOINTS and tag in taken:
        tag -= 1
    if tag == NODE_ENDPOINTS:
        tag = PADDING_TAG + 1
        while tag in taken:
            tag += 1
    free = spare - uvarint_size(tag) - (uvarint_size(len(fields) + 1) - uvarint_size(len(fields)))
    if free < 1:
        return fields
    size = free - 1
    while uvarint_size(size) + size > free:
        size -= 1
    at = sum([number < tag for number, _ in fields])
    return [*fields[:at], (tag, bytes(size)), *fields[at:]]


cdef _Tail taken_apart(Cursor *c, int api_key, object replace):
    """Read a tail, with new addresses."""
    cdef _Tail tail = _Tail()
    cdef int64_t count, tag, size_at, _i
    cdef const uint8_t *outer
    tail.array = new_endpoints(c, replace) if api_key == SHARE_FETCH else None
    tail.fields = []
    count = read_uvarint(c)
    for _i in range(count):
        outer = open_tag(c, &tag, &size_at)
        if tag == NODE_ENDPOINTS and api_key == FETCH and not c.wrong:
            tail.fields.append((tag, new_endpoints(c, replace)))
        else:
            tail.fields.append((tag, c.at[:c.end - c.at]))
            c.at = c.end
        close_tag(c, outer)
        if c.wrong:
            break
    if c.wrong:
        raise explained(c)
    tail.after = c.at[:c.end - c.at]
    return tail


def rewrite_tail(tail, int api_key, int api_version, replace):
    """Return a response's tail with other addresses, in as many bytes.

    ``tail`` is what FetchTail has left of a frame. ``replace(node_id, host, port)`` returns the
    (host, port) to write, and is not called for an empty host. Shorter addresses leave bytes over:
    they become a tagged field that no client knows (and the count of the fields takes more bytes
    than it needs for the one to three that no field can fill). Where longer ones do not fit, the
    last NodeEndpoints are left out: a client then asks for Metadata, as it does without KIP-951.

    Raises ProtocolError for bytes that cannot be such a tail, and for an address that cannot be
    written.
    """
    cdef Py_buffer data
    cdef Cursor c
    cdef _Tail parts
    cdef Py_ssize_t count
    check_version(api_key, api_version)
    take_buffer(tail, &data)
    try:
        open_cursor(&c, <const uint8_t *>data.buf, data.len, True)
        parts = taken_apart(&c, api_key, replace)
        count = sum([len(group) for group in parts.groups()])
        if count == 0:
            return PyBytes_FromStringAndSize(<const char *>data.buf, data.len)
        return parts.fitted(data.len, count)
    finally:
        PyBuffer_Release(&data)
