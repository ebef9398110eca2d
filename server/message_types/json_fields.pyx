# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Reading a few fields of a JSON body, in C: where the first of equal keys counts.

json_members.pyx goes through a body; only what is wanted becomes an object. The meaning is that of
`json_scan.scan`, which reads any body, however odd. Texts and numbers that are not plain are handed
to Python one by one, and so are arrays. What this reader gives up at, so that the scan can have it,
is an array in place of the body, and a malformed one that is wanted, of which the scan finds the
part that can be read.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_Clear
from cpython.float cimport PyFloat_FromDouble
from cpython.long cimport PyLong_FromLongLong
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from cpython.tuple cimport PyTuple_New

from server.message_types.json_members cimport (
    Member, MemberWalk, Number, Text, ODD, READ, STOPPED, read_number
)
from server.message_types.json_tokens cimport skip_value


cdef extern from "Python.h":
    PyObject *PyUnicode_DecodeUTF8(const char *text, Py_ssize_t size, const char *errors)
    void PyTuple_SET_ITEM(object values, Py_ssize_t position, PyObject *value)  # takes it over


cdef class FieldReader(MemberWalk):
    """See json_fields.pyi."""

    cdef PyObject **_values  # by slot, while a body is read
    cdef int _slots
    cdef object _text, _number, _part, _scan

    def __cinit__(self, members, int slots, text, number, part, scan):
        self._text, self._number, self._part, self._scan = text, number, part, scan
        self._slots = slots
        self._values = <PyObject **> PyMem_Calloc(max(1, slots), sizeof(PyObject *))
        if not self._values:
            raise MemoryError

    def __dealloc__(self):
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
        cdef const char *start = PyBytes_AS_STRING(body)
        cdef int slot, outcome = ODD
        try:
            outcome = self._walk(start, start + PyBytes_GET_SIZE(body))
        finally:
            if outcome <= ODD:
                for slot in range(self._slots):
                    if self._values[slot] != NULL:
                        Py_DECREF(<object> self._values[slot])
                        self._values[slot] = NULL
        return outcome > ODD

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
        cdef Number number
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
        if not read_number(start, stop, &number):
            return self._number(PyBytes_FromStringAndSize(start, stop - start))
        if number.is_integer:
            return PyLong_FromLongLong(number.integer)
        return PyFloat_FromDouble(number.value)
