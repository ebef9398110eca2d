# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Reading a few fields of a JSON body, in C: where the first of equal keys counts.

A body is gone through once, from the front, until all wanted members have been found. What is not
wanted is passed over by its quotes and brackets; only what is wanted becomes an object. The meaning
is that of `json_scan.scan`, which reads any body, however odd: where a body is malformed, reading
stops with what has been found. Texts and numbers that are not plain are handed to Python one by one,
and so are arrays. What this reader gives up at, so that the scan can have it, is an array in place of
the body, and a malformed one that is wanted, of which the scan finds the part that can be read.

The names of one level are in a hash table.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_Clear
from cpython.float cimport PyFloat_FromDouble
from cpython.long cimport PyLong_FromLongLong
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from cpython.tuple cimport PyTuple_New
from libc.string cimport memset, strncmp

from server.message_types.json_names cimport Name, NameTable, find_name, make_table
from server.message_types.json_tokens cimport closing_quote, skip_space, skip_value, unescape


cdef extern from "Python.h":
    PyObject *PyUnicode_DecodeUTF8(const char *text, Py_ssize_t size, const char *errors)
    void PyTuple_SET_ITEM(object values, Py_ssize_t position, PyObject *value)  # takes it over


cdef struct Member:
    int slot              # of the value, -1 if no path ends here
    int level             # of the members below it, -1 if there are none
    int by_parts          # Python reads whatever its value is


cdef struct Text:
    const char *position  # the next byte
    const char *end
    int missing           # members of the outermost level that have not been found


cdef enum Outcome:
    FAILED = -1           # a Python exception is set
    ODD = 0               # this is for the scan
    READ = 1
    STOPPED = 2           # all that was wanted has been found, or no more can be

cdef const char *BYTE_ORDER_MARK = b"\xef\xbb\xbf"
cdef int MOST_ESCAPED = 6           # bytes that stand for one of a name
cdef int MOST_DIGITS = 18           # of an integer that certainly fits into 64 bits
cdef long long MOST_EXACT = 1LL << 53
cdef double[23] POWERS              # of ten, all that are exact
POWERS[:] = [10.0**exponent for exponent in range(23)]


cdef class FieldReader:
    """See json_fields.pyi."""

    cdef Member *_members
    cdef Name *_names       # of the members
    cdef char *_seen        # by member
    cdef char *_name        # room for a name without its escapes
    cdef Py_ssize_t _longest_name
    cdef NameTable *_levels
    cdef PyObject **_values  # by slot, while a body is read
    cdef int _member_count, _level_count, _slots, _outermost
    cdef list _encoded      # names of the members: `Name.text` points there
    cdef list _below        # of the members: `WantedMember.below`
    cdef object _text, _number, _part, _scan

    def __cinit__(self, members, int slots, text, number, part, scan):
        cdef int first, member
        self._text, self._number, self._part, self._scan = text, number, part, scan
        self._slots = slots
        self._encoded, self._below = [], []
        levels = [members]  # breadth first; the list grows while it is gone through
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
        self._name = <char *> PyMem_Calloc(MOST_ESCAPED * self._longest_name, 1)
        self._levels = <NameTable *> PyMem_Calloc(len(levels), sizeof(NameTable))
        self._values = <PyObject **> PyMem_Calloc(max(1, slots), sizeof(PyObject *))
        if not (self._members and self._names and self._seen and self._name):
            raise MemoryError
        if not (self._levels and self._values):
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
                PyMem_Free(self._levels[number].places)
        PyMem_Free(self._levels)
        PyMem_Free(self._members)
        PyMem_Free(self._names)
        PyMem_Free(self._seen)
        PyMem_Free(self._name)
        PyMem_Free(self._values)

    def read(self, bytes body not None):
        cdef int slot
        if not self._read(body):
            return self._scan(body)
        values = PyTuple_New(self._slots)
        for slot in range(self._slots):
            PyTuple_SET_ITEM(values, slot, self._take(slot))
        return values

    def read_all(self, bodies):
        cdef Py_ssize_t row
        cdef int slot
        bodies = list(bodies)
        columns = [PyTuple_New(len(bodies)) for _ in range(self._slots)]
        for row in range(len(bodies)):
            if not self._read(bodies[row]):
                self._keep_all(self._scan(bodies[row]))
            for slot in range(self._slots):
                PyTuple_SET_ITEM(columns[slot], row, self._take(slot))
        return columns

    cdef void _keep(self, int slot, object value) noexcept:
        Py_INCREF(value)
        self._values[slot] = <PyObject *> value

    cdef void _keep_all(self, tuple values) except *:
        cdef int slot
        for slot in range(self._slots):
            self._keep(slot, values[slot])

    cdef PyObject *_take(self, int slot) noexcept:
        """The value of a slot, whose reference goes to whoever asks."""
        cdef PyObject *value = self._values[slot]
        if value == NULL:
            Py_INCREF(None)
            return <PyObject *> None
        self._values[slot] = NULL
        return value

    cdef bint _read(self, bytes body) except -1:
        """Read a body; whether it was plain. If not, there are no values."""
        cdef Text text
        cdef int slot, outcome
        text.position = PyBytes_AS_STRING(body)
        text.end = text.position + PyBytes_GET_SIZE(body)
        if strncmp(text.position, BYTE_ORDER_MARK, 3) == 0:
            text.position += 3
        text.position = skip_space(text.position)
        text.missing = self._outermost
        memset(self._seen, 0, self._member_count)
        outcome = ODD
        try:
            if text.missing and text.position[0] == c'{':
                outcome = self._read_members(&text, 0)
            elif not text.missing or text.position[0] != c'[':
                outcome = STOPPED
        finally:
            if outcome <= ODD:
                for slot in range(self._slots):
                    if self._values[slot] != NULL:
                        Py_DECREF(<object> self._values[slot])
                        self._values[slot] = NULL
        return outcome > ODD

    cdef int _find_escaped(self, int level, const char *name, Py_ssize_t length) noexcept nogil:
        if length > MOST_ESCAPED * self._longest_name:
            return -1
        length = unescape(name, name + length, self._name)
        return find_name(&self._levels[level], self._names, self._name, length)

    cdef int _read_members(self, Text *text, int level) except -1:
        """Read an object from its brace on."""
        cdef const char *at = skip_space(text.position + 1)
        cdef const char *end = text.end
        cdef const char *name
        cdef int number, outcome
        cdef bint escapes
        if at[0] == c'}':
            text.position = at + 1
            return READ
        while at[0] == c'"':
            name = at + 1
            at = closing_quote(name, end, &escapes)
            if at == NULL:
                return STOPPED
            if escapes:
                number = self._find_escaped(level, name, at - name)
            else:
                number = find_name(&self._levels[level], self._names, name, at - name)
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
        """Read the value of a wanted member."""
        cdef const char *start = text.position
        cdef const char *stop
        cdef bint escapes
        if start[0] == c'{' and member.level >= 0:
            return self._read_members(text, member.level)
        stop = text.position = skip_value(start, text.end, &escapes)
        if stop == NULL:
            return ODD if start[0] == c'[' or member.by_parts else STOPPED
        if start[0] == c'[' or member.by_parts:
            return self._read_part(start, stop, number)
        if member.slot >= 0 and start[0] != c'{':
            self._keep(member.slot, self._scalar(start, stop, escapes))
        return READ

    cdef int _read_part(self, const char *start, const char *stop, int number) except -1:
        """Let Python read what is an array, or where a subscript leads into."""
        values = self._part(PyBytes_FromStringAndSize(start, stop - start), self._below[number])
        if values is None:
            return ODD
        for (slot, _), value in zip(self._below[number], values):
            self._keep(slot, value)
        return READ

    cdef object _scalar(self, const char *start, const char *stop, bint escapes):
        """A text, word or number."""
        cdef PyObject *text
        if start[0] == c'"':
            if not escapes:
                text = PyUnicode_DecodeUTF8(start + 1, stop - start - 2, NULL)
                if text != NULL:
                    value = <object> text
                    Py_DECREF(value)
                    return value
                PyErr_Clear()
            return self._text(PyBytes_FromStringAndSize(start, stop - start))
        if start[0] == c't':
            return True
        if start[0] == c'f':
            return False
        if start[0] == c'n':
            return None
        return self._plain_number(start, stop)

    cdef object _plain_number(self, const char *start, const char *stop):
        """A number, which is known to be well-formed; or NaN, or an infinity."""
        cdef const char *at = start
        cdef long long digits = 0
        cdef int count = 0, decimals = 0, exponent = 0, exponent_digits = 0
        cdef bint negative = start[0] == c'-', is_integer = True, lowers = False
        cdef double value
        if negative:
            at += 1
        while c'0' <= at[0] <= c'9' and count <= MOST_DIGITS:
            digits = digits * 10 + (at[0] - c'0')
            count += 1
            at += 1
        if at[0] == c'.':
            is_integer = False
            at += 1
            while c'0' <= at[0] <= c'9' and count <= MOST_DIGITS:
                digits = digits * 10 + (at[0] - c'0')
                count += 1
                decimals += 1
                at += 1
        if at[0] == c'e' or at[0] == c'E':
            is_integer = False
            at += 1
            if at[0] == c'+' or at[0] == c'-':
                lowers = at[0] == c'-'
                at += 1
            while c'0' <= at[0] <= c'9' and exponent_digits < 4:
                exponent = exponent * 10 + (at[0] - c'0')
                exponent_digits += 1
                at += 1
        if at != stop or count > MOST_DIGITS:
            return self._number(PyBytes_FromStringAndSize(start, stop - start))
        if is_integer:
            return PyLong_FromLongLong(-digits if negative else digits)
        exponent = (-exponent if lowers else exponent) - decimals
        if digits > MOST_EXACT or not -22 <= exponent <= 22:
            return self._number(PyBytes_FromStringAndSize(start, stop - start))
        # Both are exact, so that there is one rounding only (Clinger).
        value = digits / POWERS[-exponent] if exponent < 0 else digits * POWERS[exponent]
        return PyFloat_FromDouble(-value if negative else value)
