# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Differences and merges of JSON objects, in C.

Of plain bodies (json_plain.pxd) with distinct names the texts of members are compared and copied. A
member that is an object is compared as text, but not rebuilt, because its white space would have to
be removed, and its own members be compared or merged. All other bodies are left to `RawTreeType`, of
which the results for plain bodies are the same.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.string cimport memcmp, memcpy

from server.message_types.json_plain cimport Member, end_of_name, end_of_value, join_members
from server.message_types.json_tokens cimport skip_space

cdef enum:
    MAX_MEMBERS = 128    # each name is compared with all others


cdef struct Members:
    Member[MAX_MEMBERS] items
    int count


def differ(bytes previous, bytes current, tuple kept_names):
    cdef Members before, now, different
    cdef Member *member
    cdef const Member *earlier
    cdef int index
    cdef bint is_changed = False
    if not read_members(previous, &before) or not read_members(current, &now):
        return None
    different.count = 0
    for index in range(now.count):
        member = &now.items[index]
        if not is_kept(member, kept_names):
            earlier = find_member(&before, index, member)
            if earlier != NULL and have_same_value(earlier, member):
                continue
            is_changed = True
        if member.value[0] == c'{':
            return None
        different.items[different.count] = member[0]
        different.count += 1
    return join_members(different.items, different.count) if is_changed else b""


def merge(bytes stored, bytes delta, bint nulls):
    cdef Members members, changes, added
    cdef Member *member
    cdef Member *replaced
    cdef int index
    if not read_members(stored, &members) or not read_members(delta, &changes):
        return None
    if has_objects(&members) or has_objects(&changes):
        return None
    added.count = 0
    for index in range(changes.count):
        member = &changes.items[index]
        if not nulls and is_null(member):
            continue
        replaced = find_member(&members, index, member)
        if replaced != NULL:
            replaced[0] = member[0]
        else:
            added.items[added.count] = member[0]
            added.count += 1
    if members.count + added.count > MAX_MEMBERS:
        return None
    memcpy(&members.items[members.count], added.items, added.count * sizeof(Member))
    members.count += added.count
    return join_members(members.items, members.count)


cdef bint read_members(bytes body, Members *members) noexcept:
    """Read the members of a body; return whether it is plain, with distinct names."""
    cdef const char *at = PyBytes_AS_STRING(body)
    cdef const char *end = at + PyBytes_GET_SIZE(body)
    cdef const char *stop
    cdef Member *member
    members.count = 0
    at = skip_space(at)
    if at[0] != c'{':
        return False
    at = skip_space(at + 1)
    if at[0] == c'}':
        return skip_space(at + 1) == end
    while members.count < MAX_MEMBERS:
        stop = end_of_name(at, end)
        if stop == NULL:
            return False
        member = &members.items[members.count]
        member.name, member.name_size = at + 1, stop - at - 1
        at = skip_space(stop + 1)
        if at[0] != c':' or find_member(members, members.count, member) != NULL:
            return False
        at = skip_space(at + 1)
        stop = end_of_value(at, end, 1)
        if stop == NULL:
            return False
        member.value, member.size = at, stop - at
        members.count += 1
        at = skip_space(stop)
        if at[0] == c'}':
            return skip_space(at + 1) == end
        if at[0] != c',':
            return False
        at = skip_space(at + 1)
    return False


cdef inline Member *find_member(Members *members, int guess, const Member *wanted) noexcept nogil:
    """Return the member with the name of another one, NULL if there is none.

    `guess` is the index of the likeliest one: mostly, bodies have the same names in the same order.
    """
    cdef int index
    if guess < members.count and have_same_name(&members.items[guess], wanted):
        return &members.items[guess]
    for index in range(members.count):
        if have_same_name(&members.items[index], wanted):
            return &members.items[index]
    return NULL


cdef inline bint have_same_name(const Member *one, const Member *other) noexcept nogil:
    return one.name_size == other.name_size and not memcmp(one.name, other.name, one.name_size)


cdef inline bint have_same_value(const Member *one, const Member *other) noexcept nogil:
    return one.size == other.size and not memcmp(one.value, other.value, one.size)


cdef inline bint is_null(const Member *member) noexcept nogil:
    return member.value[0] == c'n' or (member.value[0] == c'"' and member.size == 2)


cdef bint has_objects(const Members *members) noexcept nogil:
    cdef int index
    for index in range(members.count):
        if members.items[index].value[0] == c'{':
            return True
    return False


cdef bint is_kept(const Member *member, tuple kept_names):
    for name in kept_names:
        if (
            PyBytes_GET_SIZE(<bytes> name) == member.name_size
            and not memcmp(PyBytes_AS_STRING(<bytes> name), member.name, member.name_size)
        ):
            return True
    return False
