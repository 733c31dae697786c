# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, freethreading_compatible=False
"""Find records in batches, and copy bytes that lie anywhere. The contract is `_gather.pyi`."""

from cpython.buffer cimport (
    PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer,
)
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from rookery.records._batch cimport (
    BAD_FIELD, CONTROL, FINE, LOG_APPEND_TIME, get_field, get_i16, get_i32, get_i64, get_varint,
    get_varlong,
)


cdef Py_ssize_t measure(const int32_t* sizes, Py_ssize_t rows) noexcept nogil:
    cdef Py_ssize_t row, total = 0
    for row in range(rows):
        if sizes[row] > 0:
            total += sizes[row]
    return total


cdef void copy_all(
    const int64_t* addresses, const int32_t* sizes, Py_ssize_t rows, uint8_t* to
) noexcept nogil:
    cdef Py_ssize_t row
    for row in range(rows):
        if sizes[row] > 0:
            memcpy(to, <const uint8_t*>addresses[row], sizes[row])
            to += sizes[row]


def gather(addresses, sizes, out, /):
    cdef Py_buffer places, lengths, room
    cdef Py_ssize_t rows, needed
    PyObject_GetBuffer(addresses, &places, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(sizes, &lengths, PyBUF_SIMPLE)
        try:
            PyObject_GetBuffer(out, &room, PyBUF_SIMPLE | PyBUF_WRITABLE)
            try:
                rows = lengths.len // 4
                if places.len // 8 < rows:
                    raise ValueError(f"{places.len // 8} addresses for {rows} sizes")
                with nogil:
                    needed = measure(<const int32_t*>lengths.buf, rows)
                if needed != room.len:
                    raise ValueError(f"{needed} bytes do not fit a buffer of {room.len}")
                with nogil:
                    copy_all(
                        <const int64_t*>places.buf, <const int32_t*>lengths.buf, rows,
                        <uint8_t*>room.buf,
                    )
            finally:
                PyBuffer_Release(&room)
        finally:
            PyBuffer_Release(&lengths)
    finally:
        PyBuffer_Release(&places)


cdef enum:
    HEADER_BYTES = 61
    CODECS = 7

cdef int64_t NO_TIME = -(<int64_t>1 << 62)


cdef struct Columns:
    Py_ssize_t room
    int64_t* offsets
    int64_t* times
    int64_t* key_at
    int32_t* key_sizes
    int64_t* value_at
    int32_t* value_sizes


cdef Py_ssize_t locate_batch(
    const uint8_t* p, Py_ssize_t size, int64_t begin, int64_t until, Py_ssize_t row, Columns* to
) noexcept nogil:
    """Note where the records of one batch lie; return the next row, or -1."""
    cdef int64_t base = get_i64(p), base_time = get_i64(p + 27), max_time = get_i64(p + 35)
    cdef int32_t last_delta = get_i32(p + 23), count = get_i32(p + 57), delta = 0, length = 0
    cdef int32_t key_size = 0, value_size = 0
    cdef int attributes = get_i16(p + 21)
    cdef int64_t time_delta = 0, time, offset
    cdef Py_ssize_t at = HEADER_BYTES, end, key_at
    if p[16] != 2 or attributes & (CODECS | CONTROL) or count < 0 or base < 0:
        return -1
    # Deltas are added below: what is far from any time or offset is left to the other decoder.
    if not -(<int64_t>1 << 60) < base_time < <int64_t>1 << 60 or base > <int64_t>1 << 60:
        return -1
    while count > 0:
        count -= 1
        if get_varint(p, size, &at, &length) != FINE or length < 6 or length > size - at:
            return -1
        end = at + length
        at += 1
        if get_varlong(p, end, &at, &time_delta) != FINE:
            return -1
        if get_varint(p, end, &at, &delta) != FINE or delta < 0 or delta > last_delta:
            return -1
        if get_field(p, end, &at, &key_size, BAD_FIELD) != FINE:
            return -1
        key_at = at
        at += key_size if key_size > 0 else 0
        if get_field(p, end, &at, &value_size, BAD_FIELD) != FINE:
            return -1
        offset = base + delta
        if begin <= offset < until:
            if row >= to.room or not -(<int64_t>1 << 60) < time_delta < <int64_t>1 << 60:
                return -1
            time = max_time if attributes & LOG_APPEND_TIME else base_time + time_delta
            to.offsets[row] = offset
            to.times[row] = NO_TIME if time == -1 else time
            to.key_at[row] = <int64_t><size_t>(p + key_at)
            to.key_sizes[row] = key_size
            to.value_at[row] = <int64_t><size_t>(p + at)
            to.value_sizes[row] = value_size
            row += 1
        at = end
    return row if at == size else -1


cdef Py_ssize_t locate_all(
    const uint8_t* p, Py_ssize_t size, int64_t begin, int64_t until, Columns* to
) noexcept nogil:
    cdef Py_ssize_t at = 0, row = 0, length
    while at < size:
        if size - at < HEADER_BYTES:
            return -1
        length = <Py_ssize_t>get_i32(p + at + 8) + 12
        if length < HEADER_BYTES or length > size - at:
            return -1
        row = locate_batch(p + at, length, begin, until, row, to)
        if row < 0:
            return -1
        at += length
    return row


def locate(data, int64_t begin, int64_t until, columns, /):
    cdef Py_buffer views[7]
    cdef Columns to
    cdef Py_ssize_t found
    cdef int held = 0, flags
    try:
        for one in (data, *columns):
            flags = PyBUF_SIMPLE | (PyBUF_WRITABLE if held else 0)
            PyObject_GetBuffer(one, &views[held], flags)
            held += 1
            if held == 7:
                break
        if held != 7:
            raise ValueError(f"{held - 1} columns, not 6")
        to.room = min(
            views[1].len // 8, views[2].len // 8, views[3].len // 8, views[4].len // 4,
            views[5].len // 8, views[6].len // 4,
        )
        to.offsets, to.times = <int64_t*>views[1].buf, <int64_t*>views[2].buf
        to.key_at, to.key_sizes = <int64_t*>views[3].buf, <int32_t*>views[4].buf
        to.value_at, to.value_sizes = <int64_t*>views[5].buf, <int32_t*>views[6].buf
        with nogil:
            found = locate_all(<const uint8_t*>views[0].buf, views[0].len, begin, until, &to)
        return found
    finally:
        while held:
            held -= 1
            PyBuffer_Release(&views[held])
