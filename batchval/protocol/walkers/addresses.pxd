"""What other modules that write addresses share."""

cdef bytes checked_host(object host, object port)
