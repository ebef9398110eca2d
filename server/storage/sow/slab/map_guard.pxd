# cython: language_level=3
"""What compiled code sees of a guard; see map_guard.pyx."""


cdef class MapGuard:
    cdef public int lost
