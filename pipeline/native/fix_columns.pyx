# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Reads the fields of many bodies `tag=value` into columns, in C; see columns.pyx.

Parts that are no `tag=value` are skipped, and an empty value is NULL. A tag that occurs twice is an
array: that is odd here, as is a number with other characters around it.
"""

from libc.stdint cimport int64_t
from libc.string cimport memchr, memcpy, strncmp

from pipeline.native.columns cimport (
    DAY, MOMENT, NO_DAY, REAL, TEXT, TRUTH, WHOLE, Column, ColumnReader, Guess,
    days_since_1970, find_column, guess_at, is_guess, keep_day, keep_real, keep_text, keep_whole,
    read_day, read_moment, scan_clock, scan_real, scan_whole, two_digits
)


cdef enum:
    MAX_LAST = 63        # bytes of a number that nothing follows in its body


cdef class FixColumnReader(ColumnReader):
    """See fix_columns.pyi."""

    cdef int _separator
    cdef bint _fix_times

    def __init__(self, wanted, int separator, *, bint fix_times):
        self._separator = separator
        self._fix_times = fix_times

    cdef bint _read_body(
        self, const char *at, const char *end, Py_ssize_t row, const char *base
    ) except -1:
        cdef const char *name
        cdef const char *stop
        cdef Guess *guess
        cdef Column *column
        cdef int number, place = 0
        while at < end:
            name = at
            guess = guess_at(&self._levels[0], place)
            place += 1
            if is_guess(guess, name, end):
                number = guess.number
                at += guess.length
            else:
                while at < end and at[0] != c'=' and at[0] != self._separator:
                    at += 1
                if at == end:
                    return True
                if at[0] != c'=':
                    at += 1
                    continue
                number = find_column(&self._levels[0], self._names, guess, name, at - name)
            at += 1
            stop = <const char *> memchr(at, self._separator, end - at)
            if stop == NULL:
                stop = end
            if number >= 0:
                column = &self._columns[number]
                if column.seen == row + 1:
                    return False
                column.seen = row + 1
                if at < stop:
                    column.valid[row] = 1
                    if not self._read_value(at, stop, column, row):
                        return False
            at = stop + 1
        return True

    cdef bint _read_value(
        self, const char *at, const char *stop, Column *column, Py_ssize_t row
    ) except -1:
        """Read the value of a column; return whether it was plain."""
        cdef char[MAX_LAST + 1] last
        cdef long long whole
        cdef double real
        if column.kind == TEXT:
            return keep_text(at, stop - at, column)
        if stop[0] != self._separator and stop - at <= MAX_LAST:
            memcpy(last, at, stop - at)  # the next body may go on with digits
            last[stop - at] = 0
            stop, at = last + (stop - at), last
        if column.kind == WHOLE:
            return scan_whole(at, &whole) == stop and keep_whole(whole, column, row)
        if column.kind == REAL:
            if scan_real(at, &real) != stop or (real == 0 and at[0] == c'-'):
                return False
            keep_real(real, column, row)
            return True
        if column.kind == TRUTH:
            column.values[row] = at[0] == c't' or at[0] == c'1'
            return (
                (stop - at == 1 and (at[0] == c'0' or at[0] == c'1'))
                or (stop - at == 4 and strncmp(at, b"true", 4) == 0)
                or (stop - at == 5 and strncmp(at, b"false", 5) == 0)
            )
        if self._fix_times and read_fix_time(at, stop, column, row):
            return True
        if column.kind == MOMENT:
            return read_moment(at, stop, column, row)
        return read_day(at, stop, column, row)


cdef bint read_fix_time(
    const char *at, const char *stop, Column *column, Py_ssize_t row
) noexcept nogil:
    """Read a UTCTimestamp or a UTCDateOnly; return False if it is neither."""
    cdef int64_t days, moment
    if stop - at < 8:
        return False
    days = days_since_1970(
        two_digits(at) * 100 + two_digits(at + 2), two_digits(at + 4), two_digits(at + 6)
    )
    moment = days * 86_400_000_000LL
    if days == NO_DAY:
        return False
    if stop - at > 8 and (at[8] != c'-' or scan_clock(at + 9, stop, days, &moment) != stop):
        return False
    if column.kind == DAY:
        return keep_day(days, column, row)
    (<int64_t *> column.values)[row] = moment
    return True
