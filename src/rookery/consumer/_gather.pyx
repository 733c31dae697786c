# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, freethreading_compatible=False
"""Find records in batches, and copy bytes from any address. The contract is `_gather.pyi`."""

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
    WIDTH = 8
    OFFSET = 0
    TIME = 1
    ORDER = 2
    PARTITION = 3
    KEY = 4
    VALUE = 6


cdef Py_ssize_t rows_of(Py_ssize_t size) except -1:
    if size % (8 * WIDTH):
        raise ValueError(f"{size} bytes are not whole rows")
    return size // (8 * WIDTH)


cdef void unpack_all(const int64_t* lines, Py_ssize_t rows, Py_buffer* to) noexcept nogil:
    cdef Py_ssize_t row
    cdef const int64_t* one
    cdef int64_t* offsets = <int64_t*>to[OFFSET].buf
    cdef int64_t* times = <int64_t*>to[TIME].buf
    cdef int64_t* orders = <int64_t*>to[ORDER].buf
    cdef int32_t* partitions = <int32_t*>to[PARTITION].buf
    cdef int64_t* keys = <int64_t*>to[KEY].buf
    cdef int32_t* key_sizes = <int32_t*>to[KEY + 1].buf
    cdef int64_t* values = <int64_t*>to[VALUE].buf
    cdef int32_t* value_sizes = <int32_t*>to[VALUE + 1].buf
    for row in range(rows):
        one = <const int64_t*><size_t>lines[row]
        offsets[row] = one[OFFSET]
        times[row] = one[TIME]
        orders[row] = one[ORDER]
        partitions[row] = <int32_t>one[PARTITION]
        keys[row] = one[KEY]
        key_sizes[row] = <int32_t>one[KEY + 1]
        values[row] = one[VALUE]
        value_sizes[row] = <int32_t>one[VALUE + 1]


def unpack(lines, columns, /):
    cdef Py_buffer rows
    cdef Py_buffer to[WIDTH]
    cdef Py_ssize_t count
    cdef int held = 0, size
    PyObject_GetBuffer(lines, &rows, PyBUF_SIMPLE)
    try:
        count = rows.len // 8
        if len(columns) != WIDTH:
            raise ValueError(f"{len(columns)} columns, not {WIDTH}")
        for one in columns:
            PyObject_GetBuffer(one, &to[held], PyBUF_SIMPLE | PyBUF_WRITABLE)
            held += 1
            size = 4 if held - 1 in (PARTITION, KEY + 1, VALUE + 1) else 8
            if to[held - 1].len != size * count:
                raise ValueError(f"column {held - 1} has not the room for {count} rows")
        with nogil:
            unpack_all(<const int64_t*>rows.buf, count, to)
    finally:
        while held:
            held -= 1
            PyBuffer_Release(&to[held])
        PyBuffer_Release(&rows)


cdef enum:
    HEADER_BYTES = 61
    CODECS = 7

cdef int64_t NO_TIME = -(<int64_t>1 << 62)


cdef struct Rows:
    Py_ssize_t room
    int64_t partition
    int64_t* table


cdef Py_ssize_t locate_batch(
    const uint8_t* p, Py_ssize_t size, int64_t begin, int64_t until, Py_ssize_t row, Rows* to
) noexcept nogil:
    """Record the locations of one batch's records; return the next row, or -1."""
    cdef int64_t base = get_i64(p), base_time = get_i64(p + 27), max_time = get_i64(p + 35)
    cdef int32_t last_delta = get_i32(p + 23), count = get_i32(p + 57), delta = 0, length = 0
    cdef int32_t key_size = 0, value_size = 0
    cdef int attributes = get_i16(p + 21)
    cdef int64_t time_delta = 0, time, offset
    cdef Py_ssize_t at = HEADER_BYTES, end, key_at
    cdef int64_t* one = to.table + row * WIDTH
    if p[16] != 2 or attributes & (CODECS | CONTROL) or count < 0 or base < 0:
        return -1
    # Deltas are added below and could overflow. Implausible times and offsets are left to the other
    # decoder.
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
            one[OFFSET] = offset
            one[TIME] = NO_TIME if time == -1 else time
            one[PARTITION] = to.partition
            one[KEY] = <int64_t><size_t>(p + key_at)
            one[KEY + 1] = key_size
            one[VALUE] = <int64_t><size_t>(p + at)
            one[VALUE + 1] = value_size
            one += WIDTH
            row += 1
        at = end
    return row if at == size else -1


cdef Py_ssize_t locate_all(
    const uint8_t* p, Py_ssize_t size, int64_t begin, int64_t until, Rows* to
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


def locate(data, int64_t begin, int64_t until, int64_t partition, table, /):
    cdef Py_buffer source, rows
    cdef Rows to
    cdef Py_ssize_t found
    PyObject_GetBuffer(data, &source, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(table, &rows, PyBUF_SIMPLE | PyBUF_WRITABLE)
        try:
            to.room, to.partition = rows_of(rows.len), partition
            to.table = <int64_t*>rows.buf
            with nogil:
                found = locate_all(<const uint8_t*>source.buf, source.len, begin, until, &to)
            return found
        finally:
            PyBuffer_Release(&rows)
    finally:
        PyBuffer_Release(&source)
