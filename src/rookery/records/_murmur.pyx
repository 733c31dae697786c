# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, freethreading_compatible=False
"""The partitioner's loops. The contract is `_murmur.pyi`, the oracle `twins/murmurtwin.py`."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

cdef enum:
    SEED = 0x9747B28C
    M = 0x5BD1E995


cdef uint32_t get_word(const uint8_t* p) noexcept nogil:
    return (
        <uint32_t>p[0] | <uint32_t>p[1] << 8 | <uint32_t>p[2] << 16 | <uint32_t>p[3] << 24
    )


cdef uint32_t get_hash(const uint8_t* p, Py_ssize_t size) noexcept nogil:
    cdef uint32_t h = <uint32_t>SEED ^ <uint32_t>size
    cdef uint32_t k
    cdef Py_ssize_t left = size
    while left >= 4:
        k = get_word(p) * <uint32_t>M
        k ^= k >> 24
        h = (h * <uint32_t>M) ^ (k * <uint32_t>M)
        p += 4
        left -= 4
    if left:
        if left == 3:
            h ^= <uint32_t>p[2] << 16
        if left >= 2:
            h ^= <uint32_t>p[1] << 8
        h ^= <uint32_t>p[0]
        h *= <uint32_t>M
    h ^= h >> 13
    h *= <uint32_t>M
    return h ^ (h >> 15)


def murmur2(data, /):
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        return get_hash(<const uint8_t*>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)


cdef void get_bounds(
    const uint8_t* offsets, Py_ssize_t row, bint is_large, int64_t* bounds
) noexcept nogil:
    # Copied, because the buffer may not be aligned for integers.
    cdef int32_t small[2]
    if is_large:
        memcpy(bounds, offsets + row * 8, 16)
    else:
        memcpy(small, offsets + row * 4, 8)
        bounds[0], bounds[1] = small[0], small[1]


cdef Py_ssize_t hash_all(
    const uint8_t* offsets, const uint8_t* data, Py_ssize_t size, Py_ssize_t first,
    Py_ssize_t rows, bint is_large, int32_t count, int32_t* chosen,
) noexcept nogil:
    """Return the first key whose offsets are outside the data, or -1 if there is none."""
    cdef Py_ssize_t row
    cdef int64_t at[2]
    for row in range(rows):
        get_bounds(offsets, first + row, is_large, at)
        if at[0] < 0 or at[1] < at[0] or at[1] > size:
            return row
        chosen[row] = <int32_t>(
            (get_hash(data + at[0], at[1] - at[0]) & 0x7FFFFFFF) % <uint32_t>count
        )
    return -1


def partitions(
    offsets, data, Py_ssize_t first, Py_ssize_t rows, bint is_large, int32_t count, /,
):
    cdef Py_buffer places, keys
    PyObject_GetBuffer(offsets, &places, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(data, &keys, PyBUF_SIMPLE)
        try:
            return find_all(&places, &keys, first, rows, is_large, count)
        finally:
            PyBuffer_Release(&keys)
    finally:
        PyBuffer_Release(&places)


cdef find_all(
    Py_buffer* places, Py_buffer* keys, Py_ssize_t first, Py_ssize_t rows, bint is_large,
    int32_t count,
):
    cdef Py_ssize_t width = 8 if is_large else 4
    cdef Py_ssize_t bad
    if first < 0 or rows < 0 or count < 1:
        raise ValueError(f"{rows} keys from {first} on for {count} partitions")
    if (first + rows + 1) * width > places.len:
        raise ValueError(f"{first + rows} keys do not fit {places.len} bytes of offsets")
    chosen = PyByteArray_FromStringAndSize(NULL, 4 * rows)
    cdef int32_t* to = <int32_t*>PyByteArray_AS_STRING(chosen)
    cdef const uint8_t* at = <const uint8_t*>places.buf
    cdef const uint8_t* p = <const uint8_t*>keys.buf
    cdef Py_ssize_t size = keys.len
    cdef int64_t bounds[2]
    with nogil:
        bad = hash_all(at, p, size, first, rows, is_large, count, to)
    if bad >= 0:
        get_bounds(at, first + bad, is_large, bounds)
        raise ValueError(f"key {bad} is at {bounds[0]} to {bounds[1]} of {size} bytes")
    return chosen


cdef Py_ssize_t count_all(
    const int32_t* groups, Py_ssize_t rows, int32_t count, int64_t* sizes
) noexcept nogil:
    cdef Py_ssize_t row
    for row in range(rows):
        if groups[row] < 0 or groups[row] >= count:
            return row
        sizes[groups[row]] += 1
    return -1


cdef void place_all(
    const int32_t* groups, Py_ssize_t rows, int32_t count, const int64_t* sizes, int64_t* ends,
    int64_t* order,
) noexcept nogil:
    cdef Py_ssize_t row
    cdef int32_t group
    cdef int64_t begin = 0
    for group in range(count):
        ends[group] = begin
        begin += sizes[group]
    for row in range(rows):
        order[ends[groups[row]]] = row
        ends[groups[row]] += 1


def gather(groups, int32_t count, /):
    # Copied, so that the integers are aligned.
    aligned = bytearray(groups)
    cdef Py_ssize_t size = len(aligned)
    cdef Py_ssize_t rows = size // 4
    cdef Py_ssize_t bad
    if count < 0 or size % 4:
        raise ValueError(f"{size} bytes of rows for {count} groups")
    rows_by_group = PyByteArray_FromStringAndSize(NULL, 8 * rows)
    cdef const int32_t* at = <const int32_t*>PyByteArray_AS_STRING(aligned)
    cdef int64_t* order = <int64_t*>PyByteArray_AS_STRING(rows_by_group)
    cdef int64_t* sizes = <int64_t*>calloc(2 * <size_t>count + 1, sizeof(int64_t))
    if sizes is NULL:
        raise MemoryError
    try:
        with nogil:
            bad = count_all(at, rows, count, sizes)
            if bad < 0:
                place_all(at, rows, count, sizes, sizes + count, order)
        if bad >= 0:
            raise ValueError(
                f"row {bad} is of group {at[bad]}, which is not within 0..{count - 1}"
            )
        return rows_by_group, [sizes[group] for group in range(count)]
    finally:
        free(sizes)
