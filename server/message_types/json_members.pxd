# cython: language_level=3
"""The scan of the members of a JSON body, for other modules in C; see json_members.pyx."""

from server.message_types.json_names cimport Name, NameTable


cdef struct Member:
    int slot              # of the value, -1 if no path ends here
    int level             # of the members below it, -1 if there are none
    int by_parts          # Python reads its value, of any kind


cdef struct Text:
    const char *position  # the next byte
    const char *end
    int missing           # members of the outermost level that have not been found


cdef enum Outcome:
    FAILED = -1           # a Python exception is set
    ODD = 0               # `json_scan` must read the body
    READ = 1
    STOPPED = 2           # all wanted members have been found, or no more can be


cdef struct Number:
    bint is_integer
    long long integer
    double value          # of an integer, the nearest


cdef enum:
    MAX_GUESS_LENGTH = 27    # maximum bytes of a cached name, with the quote after it


cdef struct Guess:
    char text[MAX_GUESS_LENGTH]
    signed char length    # with the quote, 0 if there is no guess
    int number            # index of the member, -1 if it is not wanted


cdef class MemberWalk:
    cdef Member *_members
    cdef Name *_names       # of the members
    cdef char *_seen        # by member
    cdef char *_name        # room for a name without its escapes
    cdef Py_ssize_t _longest_name
    cdef NameTable *_levels
    cdef Guess *_guesses    # GUESSED for each level; NULL until `_guess_names`
    cdef int _member_count, _level_count, _outermost
    cdef list _encoded      # names of the members: `Name.text` points there
    cdef list _below        # of the members: `JsonPathNode.below`

    cdef int _guess_names(self) except -1
    cdef int _walk(self, const char *start, const char *end) except -1
    cdef int _find_escaped(self, int level, const char *name, Py_ssize_t length) noexcept nogil
    cdef int _read_members(self, Text *text, int level) except -1
    cdef int _read_member(self, Text *text, Member *member, int number) except -1


cdef bint read_number(const char *start, const char *stop, Number *number) noexcept nogil
