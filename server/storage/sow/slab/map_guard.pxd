# cython: language_level=3
"""The attributes of a guard for compiled code; see map_guard.pyx."""


cdef class MapGuard:
    cdef public int lost
