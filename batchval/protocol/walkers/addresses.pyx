"""Find brokers' addresses in responses, and write the frame again with others.

Metadata, FindCoordinator and DescribeCluster say them outright; Produce (10 and up), Fetch (16 and
up), ShareFetch and ShareAcknowledge in the tagged field NodeEndpoints (KIP-951), whose size changes
with them. Only as much of a frame is walked as can hold one; all else stays as it came, slices of
it where it is large.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t

from batchval.protocol.walkers.api_keys cimport (
    DESCRIBE_CLUSTER, FETCH, FIND_COORDINATOR, METADATA, PRODUCE, SHARE_ACKNOWLEDGE, SHARE_FETCH,
)
from batchval.protocol.cursor cimport (
    Cursor, open_cursor, put_int32, put_uvarint, read_int32, read_uvarint, skip_tags, uvarint_size,
)
from batchval.protocol.walkers.splice cimport Splicer, splicer
from batchval.protocol.walkers.tables cimport row_of
from batchval.protocol.walkers.views cimport FrameView
from batchval.protocol.walkers.positions cimport (
    NODE_COLUMNS, NODE_HOST, NODE_HOST_AT, NODE_HOST_SIZE, NODE_NODE_ID, NODE_PORT_AT, NODE_TAG_AT,
    NODE_TAG_END,
    locate_describe_cluster_response, locate_fetch_response, locate_find_coordinator_response,
    locate_metadata_response,
    locate_produce_response, locate_share_acknowledge_response, locate_share_fetch_response,
)

from batchval.protocol import apis
from batchval.protocol.errors import ProtocolError, TooManyBrokersError

cdef enum:
    MAX_KNOWN_LISTS = 8             # lists of brokers in ``known``; with one more all are forgotten
    MAX_KNOWN_BYTES = 64 << 10   # bytes of one: 1,000 brokers

#: Brokers that one answer may name, each counted once: twice as many as clusters are known to have.
MAX_BROKERS = 2_000

WITH_ADDRESSES = frozenset(
    {PRODUCE, FETCH, METADATA, FIND_COORDINATOR, DESCRIBE_CLUSTER, SHARE_FETCH, SHARE_ACKNOWLEDGE})


def check_brokers(Py_ssize_t count):
    """Check the number of brokers in one answer. Raises TooManyBrokersError."""
    if count > MAX_BROKERS:
        raise TooManyBrokersError(f"it names {count} brokers, at most {MAX_BROKERS} are allowed")


def may_hold_addresses(int api_key, int api_version):
    """Return whether a response of this version can hold addresses of brokers.

    ``rewrite_addresses`` is for these.
    """
    return api_key in WITH_ADDRESSES and api_version >= apis.APIS[api_key].addresses_from


@cython.no_gc
cdef class _Nodes(FrameView):
    cdef int table

    cdef const int32_t *row(self, Py_ssize_t i):
        return row_of(&self.t.tables[self.table], i, NODE_COLUMNS)

    cdef Py_ssize_t count(self):
        return self.t.tables[self.table].count

    cdef int walk(self, frame, int api_key, int api_version) except -1:
        cdef Cursor *c = &self.c
        if api_key not in WITH_ADDRESSES:
            raise ProtocolError(f"responses with the key {api_key} are not known to hold addresses")
        self.hold(frame)
        self.api_version = api_version
        self.correlation_id = read_int32(c)
        c.flexible = api_version >= apis.APIS[api_key].flexible_from
        self.table = 3 if api_key == PRODUCE else 0
        with nogil:
            skip_tags(c)
            if api_key == PRODUCE:
                locate_produce_response(c, api_version, &self.t)
            elif api_key == FETCH:
                locate_fetch_response(c, api_version, &self.t)
            elif api_key == METADATA:
                locate_metadata_response(c, api_version, &self.t)
            elif api_key == FIND_COORDINATOR:
                locate_find_coordinator_response(c, api_version, &self.t)
            elif api_key == DESCRIBE_CLUSTER:
                locate_describe_cluster_response(c, api_version, &self.t)
            elif api_key == SHARE_FETCH:
                locate_share_fetch_response(c, api_version, &self.t)
            else:
                locate_share_acknowledge_response(c, api_version, &self.t)
        self.finish_walk()
        return 0

    cdef object host(self, const int32_t *row):
        return self.text(row[NODE_HOST], row[NODE_HOST_SIZE])

    cdef bytes host_bytes(self, const int32_t *row):
        return (<const char *>self.base())[row[NODE_HOST]:row[NODE_HOST] + row[NODE_HOST_SIZE]]

    cdef int32_t port(self, const int32_t *row):
        cdef Cursor c
        open_cursor(&c, self.base(), self.view.len, False)
        c.at += row[NODE_PORT_AT]
        return read_int32(&c)

    cdef Py_ssize_t coded(self, Py_ssize_t size):
        """Return the encoded size of a string of this size, its length included."""
        return size + (uvarint_size(size + 1) if self.c.flexible else 2)

    cdef int64_t tag_size(self, const int32_t *row):
        cdef Cursor c
        open_cursor(&c, self.base(), self.view.len, True)
        c.at += row[NODE_TAG_AT]
        return read_uvarint(&c)


def addresses(frame, int api_key, int api_version):
    """Return (node_id, host, port) of every address in a response's frame (no length), in order.

    Raises ProtocolError for malformed bytes.
    """
    cdef _Nodes nodes = _Nodes()
    cdef Py_ssize_t i
    nodes.walk(frame, api_key, api_version)
    found = []
    for i in range(nodes.count()):
        found.append((nodes.row(i)[NODE_NODE_ID], nodes.host(nodes.row(i)),
                nodes.port(nodes.row(i))))
    return found


def rewrite_addresses(
    frame, int api_key, int api_version, replace, *, correlation_id=None, dict known=None
):
    """Return the frame, length and all, in chunks, with every address replaced.

    ``replace(node_id, host, port)`` gives the (host, port) to write; what it raises goes on. It is
    asked once about the same address, and not about an empty host, which is how a response says
    that it has no address to give. More than MAX_BROKERS brokers are a TooManyBrokersError, before
    it is asked about any.

    ``known`` is for Metadata: it maps the bytes of brokers that have come before to those that were
    written, and ``replace`` is not asked about these again. Its owner clears it when ``replace``
    would answer or do something else.
    """
    cdef _Nodes nodes = _Nodes()
    cdef Splicer s
    cdef Py_ssize_t start, end
    nodes.walk(frame, api_key, api_version)
    s = splicer(nodes.whole, nodes.base(), nodes.c.flexible)
    if correlation_id is not None:
        put_int32(s.grow(4), correlation_id)
        s.jump(4)
    if known is None or api_key != METADATA or nodes.count() == 0:
        put_addresses(s, nodes, api_key, replace)
    else:
        start = nodes.row(0)[NODE_HOST_AT] - 4  # the first broker's id
        end = nodes.row(nodes.count() - 1)[NODE_PORT_AT] + 4
        s.keep_to(start)
        s.put(written_brokers(nodes, start, end, replace, known))
        s.jump(end)
    s.keep_to(nodes.view.len)
    return s.finish()


cdef bytes written_brokers(
    _Nodes nodes, Py_ssize_t start, Py_ssize_t end, object replace, dict known
):
    """Return what is written for the bytes ``start`` to ``end``, where all addresses stand."""
    cdef Splicer s
    cdef bytes came, written
    came = (<const char *>nodes.base())[start:end]
    written = known.get(came)
    if written is not None:
        return written
    s = splicer(nodes.whole, nodes.base(), nodes.c.flexible)
    s.jump(start)
    put_addresses(s, nodes, METADATA, replace)
    written = b"".join(s.finish())[4:]  # without the length of a frame
    if len(came) <= MAX_KNOWN_BYTES:
        if len(known) >= MAX_KNOWN_LISTS:
            known.clear()
        known[came] = written
    return written


cdef int put_addresses(Splicer s, _Nodes nodes, int api_key, object replace) except -1:
    """Put all up to the end of the last address, with each address replaced."""
    cdef const int32_t *row
    cdef Py_ssize_t i, j, delta, count = nodes.count()
    cdef int32_t tag = -1, port
    cdef bytes coded
    cdef list hosts = [], ports = []
    cdef dict written = {}
    if count > MAX_BROKERS and api_key == FIND_COORDINATOR:  # one for each key that was asked for
        check_brokers(len({nodes.row(i)[NODE_NODE_ID] for i in range(count)}))
    else:
        check_brokers(count)
    for i in range(count):
        row = nodes.row(i)
        port = nodes.port(row)
        if row[NODE_HOST_SIZE] == 0:
            hosts.append(b"")
            ports.append(port)
            continue
        came = (row[NODE_NODE_ID], nodes.host_bytes(row), port)
        known = written.get(came)
        if known is None:
            new_host, new_port = replace(row[NODE_NODE_ID], nodes.host(row), port)
            known = written[came] = (checked_host(new_host, new_port), new_port)
        hosts.append(known[0])
        ports.append(known[1])
    for i in range(count):
        row = nodes.row(i)
        if row[NODE_TAG_AT] >= 0 and row[NODE_TAG_AT] != tag:
            tag = row[NODE_TAG_AT]
            delta = 0
            for j in range(i, count):
                if nodes.row(j)[NODE_TAG_AT] == tag:
                    delta += nodes.coded(len(hosts[j])) - nodes.coded(nodes.row(j)[NODE_HOST_SIZE])
            s.keep_to(tag)
            put_tag_size(s, nodes.tag_size(row) + delta)
            s.jump(row[NODE_TAG_END])
        s.keep_to(row[NODE_HOST_AT])
        coded = hosts[i]
        s.put_length(len(coded), 2)
        s.put(coded)
        s.jump(row[NODE_HOST] + row[NODE_HOST_SIZE])
        s.keep_to(row[NODE_PORT_AT])
        port = ports[i]
        put_int32(s.grow(4), port)
        s.jump(row[NODE_PORT_AT] + 4)
    return 0


cdef int put_tag_size(Splicer s, int64_t size) except -1:
    put_uvarint(s.grow(uvarint_size(size)), size)
    return 0


cdef bytes checked_host(object host, object port):
    """Return the host as bytes. Raises ProtocolError for an address that no response may name."""
    cdef bytes coded = host.encode()
    if len(coded) > 0x7fff or not -1 <= port <= 0xffff:
        raise ProtocolError(
            f"{host[:100]!r}:{port} cannot be an address: a host has at most {0x7fff} bytes, "
            f"a port is -1 to {0xffff}")
    return coded
