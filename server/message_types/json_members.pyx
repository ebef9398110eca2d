# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Scans a JSON body for the members of paths; the first of equal names counts.

A body is read once, from the front, until all wanted members have been found. Unwanted values are
skipped by their quotes and brackets. At malformed bytes the scan stops with the members found so
far. The names of one level are in a hash table. A subclass defines the processing of a member.

Mostly, publishers write the same names in the same order. A reader of many bodies therefore caches
the name at each place of the last body, and looks up a name only if it differs.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.string cimport memcmp, memcpy, memset, strncmp

from server.message_types.json_names cimport Name, NameTable, find_name, make_table
from server.message_types.json_tokens cimport closing_quote, skip_space, skip_value, unescape

cdef enum:
    GUESSED = 64          # places of an object with a cached name

cdef const char *BYTE_ORDER_MARK = b"\xef\xbb\xbf"
cdef int MAX_ESCAPED = 6           # maximum bytes of an escape for one byte of a name
cdef int MAX_DIGITS = 18           # of an integer that certainly fits into 64 bits
cdef long long MAX_EXACT = 1LL << 53
cdef double[23] POWERS              # of ten, all that are exact
POWERS[:] = [10.0**exponent for exponent in range(23)]


cdef class MemberWalk:
    """Scans bodies.

    Args:
        members: the wanted members of the outermost object; see `JsonPathNode` in json_read.py.
    """

    def __cinit__(self, members, *_):
        cdef int first, member
        self._encoded, self._below = [], []
        levels = [members]  # breadth first; the list grows during the iteration
        plan = []
        for level in levels:
            for wanted in level:
                self._encoded.append(wanted.name)
                self._below.append(wanted.below)
                plan.append((len(levels) if wanted.members else -1, wanted.slot, wanted.by_parts))
                if wanted.members:
                    levels.append(wanted.members)
        self._member_count, self._level_count = len(plan), len(levels)
        self._outermost = len(members)
        self._members = <Member *> PyMem_Calloc(max(1, len(plan)), sizeof(Member))
        self._names = <Name *> PyMem_Calloc(max(1, len(plan)), sizeof(Name))
        self._seen = <char *> PyMem_Calloc(max(1, len(plan)), 1)
        self._longest_name = max([1] + [len(name) for name in self._encoded])
        self._name = <char *> PyMem_Calloc(MAX_ESCAPED * self._longest_name, 1)
        self._levels = <NameTable *> PyMem_Calloc(len(levels), sizeof(NameTable))
        if not (self._members and self._names and self._seen and self._name and self._levels):
            raise MemoryError
        for member, (name, planned) in enumerate(zip(self._encoded, plan)):
            self._names[member].text = PyBytes_AS_STRING(name)
            self._names[member].length = PyBytes_GET_SIZE(name)
            self._members[member].level = planned[0]
            self._members[member].slot = planned[1]
            self._members[member].by_parts = planned[2]
        first = 0
        for number_of_level, level in enumerate(levels):
            if not make_table(&self._levels[number_of_level], self._names, first, len(level)):
                raise MemoryError
            first += len(level)

    def __dealloc__(self):
        cdef int number
        if self._levels:
            for number in range(self._level_count):
                PyMem_Free(self._levels[number].buckets)
        PyMem_Free(self._levels)
        PyMem_Free(self._members)
        PyMem_Free(self._names)
        PyMem_Free(self._seen)
        PyMem_Free(self._name)
        PyMem_Free(self._guesses)

    cdef int _guess_names(self) except -1:
        """Enable the cache of the names at each place."""
        if self._guesses == NULL:
            self._guesses = <Guess *> PyMem_Calloc(self._level_count * GUESSED, sizeof(Guess))
            if self._guesses == NULL:
                raise MemoryError
        return 0

    cdef int _walk(self, const char *start, const char *end) except -1:
        """Scan a body that is followed by a NUL byte; return the outcome."""
        cdef Text text
        text.position, text.end = start, end
        if strncmp(text.position, BYTE_ORDER_MARK, 3) == 0:
            text.position += 3
        text.position = skip_space(text.position)
        text.missing = self._outermost
        memset(self._seen, 0, self._member_count)
        if text.missing and text.position[0] == c'{':
            return self._read_members(&text, 0)
        return STOPPED if not text.missing or text.position[0] != c'[' else ODD

    cdef int _find_escaped(self, int level, const char *name, Py_ssize_t length) noexcept nogil:
        if length > MAX_ESCAPED * self._longest_name:
            return -1
        length = unescape(name, name + length, self._name)
        return find_name(&self._levels[level], self._names, self._name, length)

    cdef int _read_members(self, Text *text, int level) except -1:
        """Read an object from its brace on; return the outcome."""
        cdef const char *at = skip_space(text.position + 1)
        cdef const char *end = text.end
        cdef const char *name
        cdef Guess *guess = NULL
        cdef int number, outcome, index = 0
        cdef bint escapes
        if at[0] == c'}':
            text.position = at + 1
            return READ
        while at[0] == c'"':
            name = at + 1
            if self._guesses != NULL:
                guess = &self._guesses[level * GUESSED + index] if index < GUESSED else NULL
                index += 1
            if (
                guess != NULL
                and guess.length
                and guess.length <= end - name
                and memcmp(guess.text, name, guess.length) == 0
            ):
                number = guess.number
                at = name + guess.length - 1
            else:
                at = closing_quote(name, end, &escapes)
                if at == NULL:
                    return STOPPED
                if escapes:
                    number = self._find_escaped(level, name, at - name)
                else:
                    number = find_name(&self._levels[level], self._names, name, at - name)
                    if guess != NULL and at - name < MAX_GUESS_LENGTH:
                        memcpy(guess.text, name, at - name + 1)
                        guess.length, guess.number = <signed char> (at - name + 1), number
            at = skip_space(at + 1)
            if at[0] != c':':
                return STOPPED
            at = skip_space(at + 1)
            if number < 0 or self._seen[number]:
                at = skip_value(at, end, &escapes)
                if at == NULL:
                    return STOPPED
            else:
                self._seen[number] = 1
                text.position = at
                outcome = self._read_member(text, &self._members[number], number)
                if outcome != READ:
                    return outcome
                at = text.position
                if level == 0:
                    text.missing -= 1
                    if text.missing == 0:
                        return STOPPED
            at = skip_space(at)
            if at[0] == c'}':
                text.position = at + 1
                return READ
            if at[0] != c',':
                return STOPPED
            at = skip_space(at + 1)
        return STOPPED

    cdef int _read_member(self, Text *text, Member *member, int number) except -1:
        """Process the value of a wanted member, and advance after it; return the outcome."""
        raise NotImplementedError


cdef bint read_number(const char *start, const char *stop, Number *number) noexcept nogil:
    """Read a number; return whether it is plain. If not, it is a word, or may not be exact."""
    cdef const char *at = start
    cdef long long digits = 0
    cdef int count = 0, decimals = 0, exponent = 0, exponent_digits = 0
    cdef bint negative = start[0] == c'-', lowers = False
    number.is_integer = True
    if negative:
        at += 1
    while c'0' <= at[0] <= c'9' and count <= MAX_DIGITS:
        digits = digits * 10 + (at[0] - c'0')
        count += 1
        at += 1
    if at[0] == c'.':
        number.is_integer = False
        at += 1
        while c'0' <= at[0] <= c'9' and count <= MAX_DIGITS:
            digits = digits * 10 + (at[0] - c'0')
            count += 1
            decimals += 1
            at += 1
    if at[0] == c'e' or at[0] == c'E':
        number.is_integer = False
        at += 1
        if at[0] == c'+' or at[0] == c'-':
            lowers = at[0] == c'-'
            at += 1
        while c'0' <= at[0] <= c'9' and exponent_digits < 4:
            exponent = exponent * 10 + (at[0] - c'0')
            exponent_digits += 1
            at += 1
    if at != stop or count > MAX_DIGITS or count == 0:
        return False
    if number.is_integer:
        number.integer = -digits if negative else digits
        number.value = <double> number.integer
        return True
    exponent = (-exponent if lowers else exponent) - decimals
    if digits > MAX_EXACT or not -22 <= exponent <= 22:
        return False
    # Both operands are exact, so there is only one rounding (Clinger).
    number.value = digits / POWERS[-exponent] if exponent < 0 else digits * POWERS[exponent]
    if negative:
        number.value = -number.value
    return True
