# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Hash tables of the wanted names of objects, by their length and some of their bytes.

The cost of a body is the same for one wanted field and for a thousand.
"""

from cpython.mem cimport PyMem_Calloc
from libc.string cimport memcmp


cdef struct Name:
    const char *text      # encoded, borrowed from the caller of `make_table`
    Py_ssize_t length
    int following         # the next name in its bucket, -1 if it is the last


cdef struct NameTable:
    int *buckets           # the first name of each bucket, -1 if there is none
    int mask              # buckets less one


cdef inline unsigned int hash_of(const char *name, Py_ssize_t length) noexcept nogil:
    if length == 0:
        return 0
    return (
        <unsigned int> length * 31
        + <unsigned char> name[0] * 7
        + <unsigned char> name[length - 1] * 13
        + <unsigned char> name[length // 2]
    )


cdef inline bint make_table(NameTable *table, Name *names, int first, int count) noexcept:
    """Make a table of `count` names, beginning with number `first`; return False without memory."""
    cdef int size = 4, number, bucket
    while size < 2 * count:
        size *= 2
    table.mask = size - 1
    table.buckets = <int *> PyMem_Calloc(size, sizeof(int))
    if table.buckets == NULL:
        return False
    for bucket in range(size):
        table.buckets[bucket] = -1
    for number in range(first, first + count):
        bucket = hash_of(names[number].text, names[number].length) & table.mask
        names[number].following = table.buckets[bucket]
        table.buckets[bucket] = number
    return True


cdef inline int find_name(
    const NameTable *table, const Name *names, const char *text, Py_ssize_t length
) noexcept nogil:
    """Return the number of a name, -1 if it is not wanted."""
    cdef int number = table.buckets[hash_of(text, length) & table.mask]
    while number >= 0:
        if names[number].length == length and memcmp(names[number].text, text, length) == 0:
            return number
        number = names[number].following
    return -1
