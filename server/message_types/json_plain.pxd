# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Plain JSON bodies, which modules in C rebuild without a tree.

A plain body is an object of members with plain names (ASCII, without escapes); its numbers and words
are those of the standard, and it does not nest deeper than `MAX_NESTING`.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.string cimport memcpy, strncmp

from server.message_types.json_tokens cimport closing_quote, ends_token, skip_number, skip_space

cdef enum:
    MAX_NESTING = 16


cdef struct Member:
    const char *name
    Py_ssize_t name_size
    const char *value
    Py_ssize_t size


cdef inline const char *end_of_name(const char *at, const char *end) noexcept nogil:
    """Return the quote behind a plain name; NULL if there is none."""
    if at[0] != c'"':
        return NULL
    at += 1
    while c' ' <= at[0] <= c'~' and at[0] != c'"' and at[0] != c'\\':
        at += 1
    return at if at < end and at[0] == c'"' else NULL


cdef inline const char *end_of_value(const char *at, const char *end, int depth) noexcept nogil:
    """Return the end of a value; NULL if it is not plain."""
    cdef const char *stop
    cdef bint escapes
    if at[0] == c'"':
        stop = closing_quote(at + 1, end, &escapes)
        return NULL if stop == NULL else stop + 1
    if at[0] == c'{' or at[0] == c'[':
        if depth == MAX_NESTING:
            return NULL
        return end_of_container(at, end, depth)
    if not strncmp(at, b"true", 4) or not strncmp(at, b"null", 4):
        stop = at + 4
    elif not strncmp(at, b"false", 5):
        stop = at + 5
    else:
        stop = at + (at[0] == c'-')
        if stop[0] == c'0' and c'0' <= stop[1] <= c'9':
            return NULL
        stop = skip_number(at)
    return stop if stop != NULL and ends_token(stop[0]) else NULL


cdef inline const char *end_of_container(const char *at, const char *end, int depth) noexcept nogil:
    """Return the end of an object or array; NULL if it is not plain."""
    cdef bint is_object = at[0] == c'{'
    cdef char closing = c'}' if is_object else c']'
    at = skip_space(at + 1)
    if at[0] == closing:
        return at + 1
    while True:
        if is_object:
            at = end_of_name(at, end)
            if at == NULL:
                return NULL
            at = skip_space(at + 1)
            if at[0] != c':':
                return NULL
            at = skip_space(at + 1)
        at = end_of_value(at, end, depth + 1)
        if at == NULL:
            return NULL
        at = skip_space(at)
        if at[0] == closing:
            return at + 1
        if at[0] != c',':
            return NULL
        at = skip_space(at + 1)


cdef inline bytes join_members(const Member *members, int count):
    """Return the object of some members."""
    cdef Py_ssize_t size = 2 + max(0, count - 1)
    cdef const Member *member
    cdef bytes made
    cdef char *to
    cdef int index
    for index in range(count):  # "name":value
        size += members[index].name_size + members[index].size + 3
    made = PyBytes_FromStringAndSize(NULL, size)
    to = PyBytes_AS_STRING(made)
    to[0] = c'{'
    to += 1
    for index in range(count):
        member = &members[index]
        if index:
            to[0] = c','
            to += 1
        to[0] = c'"'
        memcpy(to + 1, member.name, member.name_size)
        to += 1 + member.name_size
        to[0], to[1] = c'"', c':'
        memcpy(to + 2, member.value, member.size)
        to += 2 + member.size
    to[0] = c'}'
    if to + 1 != PyBytes_AS_STRING(made) + size:
        raise SystemError("an object is not of the size that was computed")
    return made
