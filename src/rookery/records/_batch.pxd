# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""What the native loops share: the facts of a batch, and the numbers that it is made of.

Every function works on (pointer, end); a position moves only over bytes that were seen.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t


cdef enum:
    MIN_RECORD = 7
    LOG_APPEND_TIME = 8
    TRANSACTIONAL = 16
    CONTROL = 32


cdef enum Fault:
    FINE
    BAD_VARINT
    BAD_LENGTH
    BAD_FIELD
    BAD_COUNT
    BAD_HEADER
    NO_HEADER_KEY
    LEFT_OVER
    BAD_OFFSET
    BAD_TIMESTAMP
    TRAILING


cdef inline str fault_text(Fault fault):
    return (
        "",
        "a varint is cut off or too long",
        "its length does not fit into the batch",
        "its key or value does not fit into it",
        "its number of headers does not fit into it",
        "a header does not fit into it",
        "a header has no key",
        "bytes are left over at its end",
        "its offset is out of order",
        "its timestamp is out of range",
        "bytes are left over after it",
    )[<int>fault]


# ---- batches


cdef struct Batch:
    int64_t base_offset
    int64_t base_timestamp
    int64_t append_time
    bint has_append_time
    int32_t last_offset_delta
    int32_t count


cdef inline int to_batch(object header, Batch* batch) except -1:
    # Not declared a tuple: Cython would refuse the named ones.
    if not isinstance(header, tuple) or len(header) < 13:
        raise ValueError("a batch header has 13 fields")
    batch.base_offset = header[0]
    batch.base_timestamp = header[7]
    batch.has_append_time = <int>header[5] & LOG_APPEND_TIME
    batch.append_time = header[8]
    batch.last_offset_delta = header[6]
    batch.count = header[12]
    return 0


# ---- numbers of a fixed size


cdef inline uint32_t get_u32(const uint8_t* p) noexcept nogil:
    return (<uint32_t>p[0] << 24) | (<uint32_t>p[1] << 16) | (<uint32_t>p[2] << 8) | p[3]


cdef inline int32_t get_i32(const uint8_t* p) noexcept nogil:
    return <int32_t>get_u32(p)


cdef inline int get_i16(const uint8_t* p) noexcept nogil:
    cdef int value = (p[0] << 8) | p[1]
    return value - 0x10000 if value & 0x8000 else value


cdef inline int64_t get_i64(const uint8_t* p) noexcept nogil:
    return <int64_t>((<uint64_t>get_u32(p) << 32) | get_u32(p + 4))


# ---- numbers as short as they can be


cdef inline Fault get_unsigned(
    const uint8_t* p, Py_ssize_t end, Py_ssize_t* at, int bits, uint64_t* value
) noexcept nogil:
    cdef Py_ssize_t i = at[0]
    cdef uint64_t number = 0
    cdef int by = 0
    cdef uint8_t byte
    while i < end and by < bits:
        byte = p[i]
        i += 1
        # Only the tenth byte of a 64-bit number can push bits out at the top.
        if by == 63 and byte > 1:
            return BAD_VARINT
        number |= <uint64_t>(byte & 0x7F) << by
        if byte < 0x80:
            if bits == 32 and number >> 32:
                return BAD_VARINT
            at[0] = i
            value[0] = number
            return FINE
        by += 7
    return BAD_VARINT


cdef inline Fault get_varint(
    const uint8_t* p, Py_ssize_t end, Py_ssize_t* at, int32_t* value
) noexcept nogil:
    cdef uint64_t number = 0
    cdef uint32_t low
    # Most varints of a record are one byte long.
    if at[0] < end and p[at[0]] < 0x80:
        number = p[at[0]]
        at[0] += 1
    elif get_unsigned(p, end, at, 32, &number) != FINE:
        return BAD_VARINT
    low = <uint32_t>number
    value[0] = <int32_t>((low >> 1) ^ (0 - (low & 1)))
    return FINE


cdef inline Fault get_varlong(
    const uint8_t* p, Py_ssize_t end, Py_ssize_t* at, int64_t* value
) noexcept nogil:
    cdef uint64_t number = 0
    if get_unsigned(p, end, at, 64, &number) != FINE:
        return BAD_VARINT
    value[0] = <int64_t>((number >> 1) ^ (0 - (number & 1)))
    return FINE


cdef inline Fault get_field(
    const uint8_t* p, Py_ssize_t end, Py_ssize_t* at, int32_t* size, Fault fault
) noexcept nogil:
    """Read the size of what follows: -1 for null, and no more than there is."""
    if get_varint(p, end, at, size) != FINE:
        return BAD_VARINT
    if size[0] < -1 or size[0] > end - at[0]:
        return fault
    return FINE


cdef inline int set_varlong(uint8_t* p, int64_t value) noexcept nogil:
    """Write a varint or varlong, which takes up 10 bytes at most; return how many."""
    cdef uint64_t rest = (<uint64_t>value << 1) ^ (<uint64_t>0 - <uint64_t>(value < 0))
    cdef int size = 0
    while rest > 0x7F:
        p[size] = <uint8_t>(rest & 0x7F) | 0x80
        rest >>= 7
        size += 1
    p[size] = <uint8_t>rest
    return size + 1
