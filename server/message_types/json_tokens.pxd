# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The tokens of JSON: skipping them, and decoding the escapes of a text.

Memory: `end` is the position of the NUL byte that ends every bytes object. No step accepts a NUL,
so code that reads one byte at a time needs no other bound; code that reads several gets `end`.
"""

from libc.string cimport strncmp


cdef inline const char *skip_space(const char *at) noexcept nogil:
    if at[0] > c' ':  # as nearly always
        return at
    while at[0] == c' ' or at[0] == c'\n' or at[0] == c'\r' or at[0] == c'\t':
        at += 1
    return at


cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    #if defined(__GNUC__) && defined(__SSE2__)
    #include <emmintrin.h>
    #endif

    #define EACH_BYTE(byte) (UINT64_C(0x0101010101010101) * (byte))

    static inline uint64_t zero_bytes(uint64_t word) {
        return (word - EACH_BYTE(0x01)) & ~word & EACH_BYTE(0x80);
    }

    /* The first quote or backslash from `at` on; `end`, or beyond, if there is none. */
    static inline const char *quote_or_escape(const char *at, const char *end) {
    #if defined(__GNUC__) && defined(__SSE2__)
        const __m128i quotes = _mm_set1_epi8('"'), escapes = _mm_set1_epi8('\\\\');
        for (; end - at >= 16; at += 16) {
            __m128i bytes = _mm_loadu_si128((const __m128i *)at);
            int found = _mm_movemask_epi8(
                _mm_or_si128(_mm_cmpeq_epi8(bytes, quotes), _mm_cmpeq_epi8(bytes, escapes)));
            if (found)
                return at + __builtin_ctz(found);
        }
    #endif
    #if defined(__GNUC__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        for (; end - at >= 8; at += 8) {
            uint64_t word, found;
            memcpy(&word, at, 8);
            found = zero_bytes(word ^ EACH_BYTE('"')) | zero_bytes(word ^ EACH_BYTE('\\\\'));
            if (found)
                return at + __builtin_ctzll(found) / 8;
        }
    #endif
        while (at < end && *at != '"' && *at != '\\\\')
            at++;
        return at;
    }

    /* Whether a word or number ends before this byte. */
    static inline int ends_token(char byte) {
        switch (byte) {
        case ' ': case '\\t': case '\\r': case '\\n':
        case '{': case '}': case '[': case ']': case ',': case ':': case '"':
            return 1;
        default:
            return 0;
        }
    }
    """
    bint ends_token(char byte) noexcept nogil
    const char *quote_or_escape(const char *at, const char *end) noexcept nogil


cdef inline const char *closing_quote(const char *at, const char *end, bint *escapes) noexcept nogil:
    """Return the quote that closes a text, NULL if none does; set whether the text has escapes."""
    escapes[0] = False
    while True:
        at = quote_or_escape(at, end)
        if at >= end:
            return NULL
        if at[0] == c'"':
            return at
        escapes[0] = True
        at += 2


cdef inline const char *skip_digits(const char *at) noexcept nogil:
    while c'0' <= at[0] <= c'9':
        at += 1
    return at


cdef inline const char *skip_number(const char *at) noexcept nogil:
    """Return the position after the number at `at`; NULL if there is none."""
    cdef const char *start
    if at[0] == c'-':
        at += 1
    start = at
    at = skip_digits(at)
    if at == start:
        return NULL
    if at[0] == c'.':
        start = at + 1
        at = skip_digits(start)
        if at == start:
            return NULL
    if at[0] == c'e' or at[0] == c'E':
        at += 1
        if at[0] == c'+' or at[0] == c'-':
            at += 1
        start = at
        at = skip_digits(at)
        if at == start:
            return NULL
    return at


cdef inline const char *skip_word(const char *at) noexcept nogil:
    """Return the position after the word at `at`; NULL if there is none. Stops at NUL (strncmp)."""
    if at[0] == c't' and strncmp(at, b"true", 4) == 0:
        return at + 4
    if at[0] == c'n' and strncmp(at, b"null", 4) == 0:
        return at + 4
    if at[0] == c'f' and strncmp(at, b"false", 5) == 0:
        return at + 5
    if at[0] == c'N' and strncmp(at, b"NaN", 3) == 0:
        return at + 3
    if at[0] == c'-':
        at += 1
    if at[0] == c'I' and strncmp(at, b"Infinity", 8) == 0:
        return at + 8
    return NULL


cdef inline const char *skip_container(const char *at, const char *end) noexcept nogil:
    """Return the position after the object or array at `at`; NULL if it has no end."""
    cdef Py_ssize_t depth = 0
    cdef bint escapes
    while at < end:
        if at[0] == c'"':
            at = closing_quote(at + 1, end, &escapes)
            if at == NULL:
                return NULL
        elif at[0] == c'{' or at[0] == c'[':
            depth += 1
        elif at[0] == c'}' or at[0] == c']':
            depth -= 1
            if depth == 0:
                return at + 1
        at += 1
    return NULL


cdef inline const char *skip_value(const char *at, const char *end, bint *escapes) noexcept nogil:
    """Return the position after the value at `at`, NULL if there is none.

    Sets `escapes`: the value is a text with escapes.
    """
    cdef const char *after
    escapes[0] = False
    if at[0] == c'"':
        at = closing_quote(at + 1, end, escapes)
        if at != NULL:
            at += 1
        return at
    if at[0] == c'{' or at[0] == c'[':
        return skip_container(at, end)
    after = skip_number(at)
    at = skip_word(at) if after == NULL else after
    if at != NULL and (ends_token(at[0]) or at == end):
        return at
    return NULL


cdef inline int hexadecimal(const char *at, const char *end) noexcept nogil:
    """Return the number of four digits, -1 if they are no digits."""
    cdef int number = 0, index
    cdef char digit
    if end - at < 4:
        return -1
    for index in range(4):
        digit = at[index]
        if c'0' <= digit <= c'9':
            number = number * 16 + digit - c'0'
        elif c'a' <= (digit | 32) <= c'f':
            number = number * 16 + (digit | 32) - c'a' + 10
        else:
            return -1
    return number


cdef inline int code_point(const char **position, const char *end) noexcept nogil:
    """Return the character of a numeric escape, after its backslash; -1 for any other escape."""
    cdef const char *at = position[0]
    cdef int code, low = -1
    code = hexadecimal(at + 1, end) if at[0] == c'u' else -1
    if code < 0:
        return -1
    at += 5
    if 0xD800 <= code < 0xDC00 and end - at >= 6 and at[0] == c'\\' and at[1] == c'u':
        low = hexadecimal(at + 2, end)
    if 0xDC00 <= low <= 0xDFFF:
        at += 6
        code = 0x10000 + ((code - 0xD800) << 10) + low - 0xDC00
    elif 0xD800 <= code <= 0xDFFF:
        code = 0xFFFD
    position[0] = at
    return code


cdef inline char unescaped(char character) noexcept nogil:
    if character == c'b':
        return c'\b'
    if character == c'f':
        return c'\f'
    if character == c'n':
        return c'\n'
    if character == c'r':
        return c'\r'
    return c'\t' if character == c't' else character


cdef inline Py_ssize_t unescape(const char *at, const char *end, char *out) noexcept nogil:
    """Write a text with its escapes decoded, which never makes it longer; return its length."""
    cdef char *to = out
    cdef int code, shift, first
    while at < end:
        if at[0] != c'\\':
            to[0] = at[0]
            to += 1
            at += 1
            continue
        at += 1
        code = code_point(&at, end)
        if code < 0:
            to[0] = unescaped(at[0])
            to += 1
            at += 1
        elif code < 0x80:
            to[0] = <char> code
            to += 1
        else:
            shift = 6 if code < 0x800 else 12 if code < 0x10000 else 18
            first = 0xC0 if shift == 6 else 0xE0 if shift == 12 else 0xF0
            to[0] = <char> (first | code >> shift)
            to += 1
            while shift:
                shift -= 6
                to[0] = <char> (0x80 | code >> shift & 0x3F)
                to += 1
    return to - out
