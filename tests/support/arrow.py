"""Arrow's C structure of an array, for tests that release memory as other libraries do."""

from __future__ import annotations

import ctypes

__all__ = ["CArray", "c_array", "moved"]


class CArray(ctypes.Structure):
    """Arrow's C structure of an array."""


CArray._fields_ = [
    *(
        (name, ctypes.c_int64)
        for name in ("length", "null_count", "offset", "n_buffers", "n_children")
    ),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(CArray))),
    ("dictionary", ctypes.POINTER(CArray)),
    ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(CArray))),
    ("private_data", ctypes.c_void_p),
]


def c_array(capsule: object) -> CArray:
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return CArray.from_address(pointer_of(capsule, b"arrow_array"))


def moved(array: CArray) -> CArray:
    """Take an array out of the place where it is, as the interface asks: mark that as released."""
    copy = CArray.from_buffer_copy(array)
    array.release = type(array.release)()
    return copy
