# cython: language_level=3

cdef extern from *:
    """
    static inline void fetch_line(const void *at) {
        __builtin_prefetch(at);
    }
    static inline void fetch(const void *object) {
        __builtin_prefetch(object);
        __builtin_prefetch((const char *)object + 64);
    }
    """
    void fetch_line(const void *at) noexcept nogil   # the 64 bytes around an address
    void fetch(const void *object) noexcept nogil    # the beginning of an object
