# cython: language_level=3
"""Integers in files and on the wire, and CRC-32C.

Both are little-endian on every platform. The CRC is computed by the processor's own instruction
where it has one: eight bytes take three cycles.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>
    #include <string.h>

    #if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    #define AS_LITTLE_32(value) __builtin_bswap32(value)
    #define AS_LITTLE_64(value) __builtin_bswap64(value)
    #else
    #define AS_LITTLE_32(value) (value)
    #define AS_LITTLE_64(value) (value)
    #endif

    static inline uint32_t load_u32(const uint8_t *at) {
        uint32_t value;
        memcpy(&value, at, sizeof value);
        return AS_LITTLE_32(value);
    }

    static inline uint64_t load_u64(const uint8_t *at) {
        uint64_t value;
        memcpy(&value, at, sizeof value);
        return AS_LITTLE_64(value);
    }

    static inline void store_u32(uint8_t *at, uint32_t value) {
        value = AS_LITTLE_32(value);
        memcpy(at, &value, sizeof value);
    }

    static inline void store_u64(uint8_t *at, uint64_t value) {
        value = AS_LITTLE_64(value);
        memcpy(at, &value, sizeof value);
    }

    /* The reflected polynomial of CRC-32C (Castagnoli). */
    #define CRC32C_POLYNOMIAL 0x82f63b78u

    static uint32_t crc32c_of_byte[256];

    static uint32_t crc32c_by_table(const uint8_t *at, size_t size) {
        uint32_t crc = 0xffffffffu;
        if (!crc32c_of_byte[1]) {
            for (uint32_t byte = 0; byte < 256; byte++) {
                uint32_t value = byte;
                for (int bit = 0; bit < 8; bit++)
                    value = value & 1 ? value >> 1 ^ CRC32C_POLYNOMIAL : value >> 1;
                crc32c_of_byte[byte] = value;
            }
        }
        while (size--)
            crc = crc >> 8 ^ crc32c_of_byte[(crc ^ *at++) & 0xff];
        return ~crc;
    }

    #if defined(__x86_64__) && defined(__GNUC__)
    #include <nmmintrin.h>
    #define HAS_CRC32C_INSTRUCTION() __builtin_cpu_supports("sse4.2")

    __attribute__((target("sse4.2")))
    static uint32_t crc32c_by_instruction(const uint8_t *at, size_t size) {
        uint64_t crc = 0xffffffffu;
        for (; size >= 8; size -= 8, at += 8)
            crc = _mm_crc32_u64(crc, load_u64(at));
        for (; size; size--, at++)
            crc = _mm_crc32_u8((uint32_t)crc, *at);
        return ~(uint32_t)crc;
    }
    #elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)
    #include <arm_acle.h>
    #define HAS_CRC32C_INSTRUCTION() 1

    static uint32_t crc32c_by_instruction(const uint8_t *at, size_t size) {
        uint32_t crc = 0xffffffffu;
        for (; size >= 8; size -= 8, at += 8)
            crc = __crc32cd(crc, load_u64(at));
        for (; size; size--, at++)
            crc = __crc32cb(crc, *at);
        return ~crc;
    }
    #else
    #define HAS_CRC32C_INSTRUCTION() 0
    #define crc32c_by_instruction crc32c_by_table
    #endif

    static inline uint32_t crc32c(const uint8_t *at, size_t size) {
        return HAS_CRC32C_INSTRUCTION() ? crc32c_by_instruction(at, size)
                                        : crc32c_by_table(at, size);
    }
    """
    uint32_t load_u32(const uint8_t *at) noexcept nogil
    uint64_t load_u64(const uint8_t *at) noexcept nogil
    void store_u32(uint8_t *at, uint32_t value) noexcept nogil
    void store_u64(uint8_t *at, uint64_t value) noexcept nogil
    uint32_t crc32c(const uint8_t *at, size_t size) noexcept nogil
