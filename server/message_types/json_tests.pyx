# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Decides simple filters for many JSON bodies, in C, without an object for any value.

A filter here consists of tests of members against literals, all of which must hold. A test is
decided by the bytes of a value if these are unambiguous: a plain number against numbers, a text
without escapes against ASCII. A value of another kind, such as a text where a test has a number, an
array or a Boolean, leaves the whole body undecided, and Python matches it. NULL passes no test. The
scan of a body ends as soon as no filter can match any more.

Literals are ASCII, so that texts compare with them as their bytes do: a byte beyond ASCII is above
all bytes of a literal. Numbers among the literals are below 2^53, so that a value of a magnitude
beyond that is on the same side of them as the double nearest to it.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.string cimport memcmp, memset

from server.message_types.json_members cimport (
    Member, MemberWalk, Number, Text, ODD, READ, STOPPED, read_number
)
from server.message_types.json_tokens cimport skip_value
from amperage.wire.frame_slices cimport FrameSlices

cdef enum:
    LESS = 1
    EQUAL = 2
    GREATER = 4            # relations of a value to a literal, as a bit set
    MAX_FILTERS = 60      # bulk.MAX_DECIDED; their numbers are bits of an outcome
    UNDECIDED = -1         # bulk.UNDECIDED


cdef struct Literal:
    double number
    const char *text       # NULL if it is a number
    Py_ssize_t size


cdef struct Test:
    int filter
    int relation           # required relation of a value to the first literal; 0 for IN, NOT IN
    int first, literals    # index and number of the literals
    bint is_in             # the value must be one of the literals, else none of them
    int following          # the next test of the same slot, -1 if it is the last


cdef class FilterTests(MemberWalk):
    """See json_tests.pyi."""

    cdef Test *_tests
    cdef Literal *_literals
    cdef int *_by_slot        # the first test of each slot
    cdef int *_wanted         # number of tests of each filter
    cdef int *_passed         # tests passed by the current body; -1 if one has failed
    cdef int _filter_count, _left
    cdef list _texts          # of the literals: `Literal.text` points there

    def __cinit__(self, members, int slots, filters):
        cdef int number = 0, literal = 0
        cdef bytes text
        tests = [(which, test) for which, tests in enumerate(filters) for test in tests]
        if len(filters) > MAX_FILTERS:
            raise ValueError(f"{len(filters)} filters; not more than {MAX_FILTERS} can be decided")
        self._filter_count = len(filters)
        self._texts = []
        self._tests = <Test *> PyMem_Calloc(max(1, len(tests)), sizeof(Test))
        literals = sum(len(test.literals) for _, test in tests)
        self._literals = <Literal *> PyMem_Calloc(max(1, literals), sizeof(Literal))
        self._by_slot = <int *> PyMem_Calloc(max(1, slots), sizeof(int))
        self._wanted = <int *> PyMem_Calloc(max(1, len(filters)), sizeof(int))
        self._passed = <int *> PyMem_Calloc(max(1, len(filters)), sizeof(int))
        if not (self._tests and self._literals and self._by_slot and self._wanted and self._passed):
            raise MemoryError
        for number in range(slots):
            self._by_slot[number] = -1
        number = 0
        for which, test in tests:
            self._tests[number].filter = which
            self._tests[number].relation = RELATIONS.get(test.operator, 0)
            self._tests[number].is_in = test.operator == "IN"
            self._tests[number].first = literal
            self._tests[number].literals = len(test.literals)
            self._tests[number].following = self._by_slot[test.slot]
            self._by_slot[test.slot] = number
            self._wanted[which] += 1
            number += 1
            for value in test.literals:
                if isinstance(value, str):
                    text = value.encode("ascii")
                    self._texts.append(text)
                    self._literals[literal].text = PyBytes_AS_STRING(text)
                    self._literals[literal].size = PyBytes_GET_SIZE(text)
                else:
                    self._literals[literal].number = value
                literal += 1

    def __dealloc__(self):
        PyMem_Free(self._tests)
        PyMem_Free(self._literals)
        PyMem_Free(self._by_slot)
        PyMem_Free(self._wanted)
        PyMem_Free(self._passed)

    def decide(self, bodies):
        cdef long long outcome, before = 0
        cdef Py_ssize_t number, begin = 0, count = len(bodies)
        cdef FrameSlices slices = <FrameSlices> bodies if type(bodies) is FrameSlices else None
        cdef const char *start
        cdef bytes body
        found = []
        for number in range(count):
            if slices is None:
                body = bodies[number]
                start = PyBytes_AS_STRING(body)
                outcome = self._decide(start, start + PyBytes_GET_SIZE(body))
            else:
                start = PyBytes_AS_STRING(slices.chunk) + slices.first[number].start
                outcome = self._decide(start, start + slices.first[number].size)
            if outcome != before:
                if before:
                    found.append((begin, number, before))
                begin, before = number, outcome
        if before:
            found.append((begin, count, before))
        return found

    cdef long long _decide(self, const char *start, const char *end) except -2:
        """Return the filters that match a body, as bits; UNDECIDED if that is not known."""
        cdef long long outcome = 0
        cdef int which
        if end[0] != 0:  # in the stream, only a body before a very large frame
            return UNDECIDED
        memset(self._passed, 0, self._filter_count * sizeof(int))
        self._left = self._filter_count
        if self._walk(start, end) == ODD:
            return UNDECIDED
        for which in range(self._filter_count):
            if self._passed[which] == self._wanted[which]:
                outcome |= 1LL << which
        return outcome

    cdef int _read_member(self, Text *text, Member *member, int number) except -1:
        """Execute the tests of a member."""
        cdef const char *start = text.position
        cdef const char *stop
        cdef bint escapes
        if start[0] == c'{' and member.level >= 0:
            return self._read_members(text, member.level)
        stop = text.position = skip_value(start, text.end, &escapes)
        if start[0] == c'[' or member.by_parts:
            return ODD
        if stop == NULL:
            return STOPPED
        if member.slot < 0 or start[0] == c'{' or start[0] == c'n':
            return READ
        if start[0] == c'"':
            if escapes:
                return ODD
            return self._test_text(member.slot, start + 1, stop - start - 2)
        return self._test_number(member.slot, start, stop)

    cdef int _test_text(self, int slot, const char *text, Py_ssize_t size) noexcept:
        cdef int number = self._by_slot[slot], index
        cdef Test *test
        cdef Literal *literal
        cdef bint holds
        if size == 0:  # the empty text is NULL
            return READ
        while number >= 0:
            test = &self._tests[number]
            literal = &self._literals[test.first]
            if literal.text == NULL:
                return ODD
            if test.relation:
                holds = (relation_of_texts(text, size, literal) & test.relation) != 0
            else:
                holds = not test.is_in
                for index in range(test.literals):
                    if literal.size == size and memcmp(literal.text, text, size) == 0:
                        holds = test.is_in
                        break
                    literal += 1
            if not self._note(test, holds):
                return STOPPED
            number = test.following
        return READ

    cdef int _test_number(self, int slot, const char *start, const char *stop) noexcept:
        cdef int number = self._by_slot[slot], index
        cdef Number value
        cdef Test *test
        cdef Literal *literal
        cdef bint holds
        if not read_number(start, stop, &value):
            return ODD
        while number >= 0:
            test = &self._tests[number]
            literal = &self._literals[test.first]
            if literal.text != NULL:
                return ODD
            if test.relation:
                holds = (relation_of_numbers(value.value, literal.number) & test.relation) != 0
            else:
                holds = not test.is_in
                for index in range(test.literals):
                    if literal.number == value.value:
                        holds = test.is_in
                        break
                    literal += 1
            if not self._note(test, holds):
                return STOPPED
            number = test.following
        return READ

    cdef inline bint _note(self, Test *test, bint holds) noexcept:
        """Record the result of a test; return whether any filter can still match."""
        cdef int *passed = &self._passed[test.filter]
        if passed[0] >= 0:
            if holds:
                passed[0] += 1
            else:
                passed[0] = -1
                self._left -= 1
        return self._left > 0


RELATIONS = {
    "=": EQUAL,
    "!=": LESS | GREATER,
    "<": LESS,
    "<=": LESS | EQUAL,
    ">": GREATER,
    ">=": GREATER | EQUAL,
}


cdef inline int relation_of_numbers(double value, double literal) noexcept nogil:
    if value == literal:
        return EQUAL
    return LESS if value < literal else GREATER


cdef inline int relation_of_texts(const char *text, Py_ssize_t size, const Literal *literal) noexcept nogil:
    cdef int order = memcmp(text, literal.text, min(size, literal.size))
    if order == 0:
        order = (size > literal.size) - (size < literal.size)
    if order == 0:
        return EQUAL
    return LESS if order < 0 else GREATER
