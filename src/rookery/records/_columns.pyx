# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Converts record batches to Arrow buffers and back, without a Python object per record.

The contract is `_columns.pyi`; `twins/columnstwin.py` does the same in Python. Batch headers are read
with the interpreter's lock held, a few hundred nanoseconds each. Records are read and written
without it. No byte is read before it is known to be inside the batch. No memory is allocated by a
count that the data states unless the data is long enough for that count.
"""

from cpython.buffer cimport PyBUF_READ, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memmove, memset

from rookery.records._batch cimport get_i32, get_i64

import pyarrow as pa
from crc32c import crc32c

from rookery.errors import ApiError, Corrupt
from rookery.records import reading as _reading
from rookery.records.writing import bad_header, bad_offset, bad_timestamp, too_large

# Indexes in reading.FAULTS; a test compares them.
cdef enum:
    CUT = 1
    SHORT
    OFFSETS
    COUNT
    CRC
    MAGIC
    CONTROL
    TRAILING
    RECORD_LENGTH
    NUMBER
    RECORD_OFFSET
    TIMESTAMP
    KEY
    VALUE
    HEADER
    RECORD_TRAILING

# Why filling ended, other than by a fault of the data.
cdef enum:
    FULL = -1
    TOO_BIG = -2
    NO_MEMORY = -3
    CHANGED = -4

# Why packing ended, other than by the end of the rows.
cdef enum:
    TOO_LARGE = 1
    BAD_OFFSET
    BAD_TIMESTAMP
    BAD_HEADER
    NO_ROOM

cdef enum:
    TOPIC = 1
    PARTITION = 2
    OFFSET = 4
    TIME = 8
    TIME_TYPE = 16
    WANT_KEY = 32
    WANT_VALUE = 64
    WANT_HEADERS = 128
    EPOCH = 256

cdef enum:
    HEADER_BYTES = 61
    SMALLEST_RECORD = 7
    APPEND_TIME = 8
    TRANSACTIONAL = 16
    IS_CONTROL = 32
    INLINE_VIEW = 12

cdef int64_t LAST_TIMESTAMP = <int64_t>1 << 62

_BITS = {
    "topic": TOPIC, "partition": PARTITION, "offset": OFFSET, "timestamp": TIME,
    "timestamp_type": TIME_TYPE, "key": WANT_KEY, "value": WANT_VALUE, "headers": WANT_HEADERS,
    "leader_epoch": EPOCH,
}


_INT32, _STRING, _BINARY, _LARGE = pa.int32(), pa.string(), pa.binary(), pa.large_binary()


# Memory of Arrow's pool, which keeps and reuses large blocks. malloc returns them to the system and
# pays for fresh pages each time (measured: 40 MB in 1.2 ms against 23 ms).

cdef struct Buf:
    uint8_t *data
    int64_t cap
    PyObject *owner


cdef object hand_over(Buf *buf, int64_t size):
    """Release the memory as an Arrow buffer of that size; free the excess."""
    cdef object buffer = <object> buf.owner
    buffer.resize(size, shrink_to_fit=2 * size < buf.cap)
    release(buf)
    return buffer


cdef void release(Buf *buf):
    cdef PyObject *owner = buf.owner
    buf.data = NULL
    buf.cap = 0
    buf.owner = NULL
    Py_XDECREF(owner)


cdef int grow(Buf *buf, int64_t need) noexcept with gil:
    cdef size_t address
    try:
        if buf.owner == NULL:
            buffer = pa.allocate_buffer(need, resizable=True)
            Py_INCREF(buffer)
            buf.owner = <PyObject *> buffer
        else:
            buffer = <object> buf.owner
            buffer.resize(need, shrink_to_fit=False)
        address = buffer.address
    except MemoryError:
        return NO_MEMORY
    buf.data = <uint8_t *> address
    buf.cap = need
    return 0


cdef inline int reserve(Buf *buf, int64_t need) noexcept nogil:
    """Reserve that many bytes in total; the size doubles, so growth is rare."""
    if need <= buf.cap and buf.owner != NULL:
        return 0
    return grow(buf, max(need, 2 * buf.cap, 64))


cdef struct Varlen:
    Buf valid
    Buf ends
    Buf data
    int64_t count
    int64_t nulls
    int64_t used


cdef inline void copy(uint8_t *to, const uint8_t *data, int64_t size) noexcept nogil:
    """Copy bytes; keys are short, and the two ends of a short copy may overlap."""
    if 8 <= size <= 16:
        memcpy(to, data, 8)
        memcpy(to + size - 8, data + size - 8, 8)
    else:
        memcpy(to, data, size)


cdef inline int append(Varlen *out, const uint8_t *data, int64_t size) noexcept nogil:
    """Add bytes, or null for a negative size; `ends` and `valid` must have room."""
    cdef int64_t i = out.count
    if size > 0:
        if out.used + size > out.data.cap and reserve(&out.data, out.used + size):
            return NO_MEMORY
        copy(out.data.data + out.used, data, size)
        out.used += size
    elif size < 0:
        out.valid.data[i >> 3] &= ~(1 << (i & 7))
        out.nulls += 1
    out.count = i + 1
    (<int32_t *> out.ends.data)[i + 1] = <int32_t> out.used
    return 0


cdef inline void append_view(
    Varlen *out, const uint8_t *data, int64_t size, int32_t buffer, const uint8_t *origin
) noexcept nogil:
    """Append a view into a buffer that stays alive, or null for a negative size."""
    cdef int64_t i = out.count
    cdef int32_t *view = <int32_t *> (out.ends.data + 16 * i)
    memset(view, 0, 16)
    if size < 0:
        out.valid.data[i >> 3] &= ~(1 << (i & 7))
        out.nulls += 1
    else:
        view[0] = <int32_t> size
        if size <= INLINE_VIEW:
            memcpy(view + 1, data, size)
        else:
            memcpy(view + 1, data, 4)
            view[2] = buffer
            view[3] = <int32_t> (data - origin)
    out.count = i + 1


cdef int make_room(Varlen *out, int64_t rows, int64_t width) noexcept nogil:
    """Reserve room for rows: width 4 for offsets (and one more), 16 for views."""
    cdef int64_t bits = (rows + 7) >> 3
    cdef int64_t had = out.valid.cap
    if reserve(&out.valid, bits) or reserve(&out.ends, (rows + 1) * width):
        return NO_MEMORY
    if out.valid.cap > had:
        memset(out.valid.data + had, 0xFF, out.valid.cap - had)
    if out.count == 0:
        memset(out.ends.data, 0, width)
    return 0


cdef void discard(Varlen *out):
    release(&out.valid)
    release(&out.ends)
    release(&out.data)


# Reading numbers.

cdef const uint8_t *long_number(
    const uint8_t *p, const uint8_t *end, int bits, int64_t *out
) noexcept nogil:
    cdef uint64_t result = 0
    cdef int shift = 0
    cdef uint8_t byte
    while p < end:
        byte = p[0]
        p += 1
        if shift == 63 and byte > 1:
            return NULL
        result |= <uint64_t> (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            if bits == 32 and result >> 32:
                return NULL
            out[0] = <int64_t> (result >> 1) ^ -<int64_t> (result & 1)
            return p
        if shift >= bits:
            return NULL
    return NULL


cdef inline const uint8_t *number(
    const uint8_t *p, const uint8_t *end, int bits, int64_t *out
) noexcept nogil:
    """Read a zigzag number and return its end, or NULL if it is cut off or too long."""
    cdef uint32_t byte, second
    if end - p >= 2:
        byte = p[0]
        if byte < 0x80:
            out[0] = <int64_t> (byte >> 1) ^ -<int64_t> (byte & 1)
            return p + 1
        second = p[1]
        if second < 0x80:
            byte = (byte & 0x7F) | (second << 7)
            out[0] = <int64_t> (byte >> 1) ^ -<int64_t> (byte & 1)
            return p + 2
    return long_number(p, end, bits, out)


# Decoding.

cdef struct Section:
    # The decompressed records of one batch, and the read position.
    const uint8_t *data
    const uint8_t *origin
    int64_t size
    int64_t position
    int64_t left
    int64_t base_offset
    int64_t last_delta
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t from_offset
    int64_t until_offset
    int32_t leader_epoch
    int32_t partition
    int32_t topic
    int32_t owner
    bint append_time


cdef struct Out:
    int wants
    bint views
    int64_t max_bytes
    int64_t max_rows
    int64_t rows
    int64_t used
    int64_t too_big_size
    int64_t too_big_offset
    int64_t header_room
    int64_t owners
    int64_t time_nulls
    Buf topic
    Buf partition
    Buf offset
    Buf time
    Buf time_valid
    Buf time_type
    Buf epoch
    Buf lists
    Varlen key
    Varlen value
    Varlen header_key
    Varlen header_value


cdef int measure_headers(
    const uint8_t *p, const uint8_t *end, int64_t *count, int64_t *size
) noexcept nogil:
    """Check the headers up to the record's end; return their number and size."""
    cdef int64_t n = 0, i, length = 0
    cdef int part
    p = number(p, end, 32, &n)
    if p == NULL:
        return NUMBER
    if n < 0 or n > (end - p) // 2:
        return HEADER
    count[0] = n
    for i in range(n):
        for part in range(2):
            p = number(p, end, 32, &length)
            if p == NULL:
                return NUMBER
            if length > end - p or length < -part:
                return HEADER
            if length > 0:
                size[0] += length
                p += length
    return RECORD_TRAILING if p != end else 0


cdef int header_room(Out *out, int64_t more) noexcept nogil:
    """Reserve room for more headers; growth doubles, so that not every record moves them all."""
    cdef int64_t need = out.header_key.count + more
    if need <= out.header_room:
        return 0
    out.header_room = 2 * need
    if make_room(&out.header_key, out.header_room, 4):
        return NO_MEMORY
    return make_room(&out.header_value, out.header_room, 4)


cdef int copy_headers(
    const uint8_t *p, const uint8_t *end, int64_t count, Out *out
) noexcept nogil:
    """Append headers that were measured before.

    The caller may change the data while the lock is not held, so lengths are checked again.
    """
    cdef int64_t i, length = 0
    cdef int part
    if header_room(out, count):
        return NO_MEMORY
    p = number(p, end, 32, &length)
    for i in range(2 * count):
        part = i & 1
        p = number(p, end, 32, &length) if p != NULL else NULL
        if p == NULL or length > end - p or length < -part:
            return CHANGED
        if append(&out.header_value if part else &out.header_key, p, length):
            return NO_MEMORY
        if length > 0:
            p += length
    (<int32_t *> out.lists.data)[out.rows + 1] = <int32_t> out.header_key.count
    return 0


cdef inline int fill_time(Section *s, Out *out, int64_t delta) noexcept nogil:
    cdef int64_t time = s.max_timestamp
    if not s.append_time:
        if delta > 0 and s.base_timestamp > INT64_MAX - delta:
            return TIMESTAMP
        if delta < 0 and s.base_timestamp < -INT64_MAX - 1 - delta:
            return TIMESTAMP
        time = s.base_timestamp + delta
    (<int64_t *> out.time.data)[out.rows] = time
    if time == -1:
        out.time_valid.data[out.rows >> 3] &= ~(1 << (out.rows & 7))
        out.time_nulls += 1
    return 0


cdef int fill_bytes(
    Section *s, Out *out, const uint8_t *p, const uint8_t *end, int64_t offset
) noexcept nogil:
    """Read key, value and headers as requested, and append them if they fit."""
    cdef int64_t key_size = -1, value_size = -1, headers = 0, size = 0
    cdef const uint8_t *key = NULL
    cdef const uint8_t *value = NULL
    cdef int wants = out.wants
    cdef int code
    key = number(p, end, 32, &key_size)
    if key == NULL:
        return NUMBER
    if key_size > end - key or key_size < -1:
        return KEY
    p = key + key_size if key_size > 0 else key
    if wants & WANT_KEY and key_size > 0:
        size = key_size
    if wants & (WANT_VALUE | WANT_HEADERS):
        value = number(p, end, 32, &value_size)
        if value == NULL:
            return NUMBER
        if value_size > end - value or value_size < -1:
            return VALUE
        p = value + value_size if value_size > 0 else value
        if wants & WANT_VALUE and value_size > 0:
            size += value_size
        if wants & WANT_HEADERS and not (end - p == 1 and p[0] == 0):
            code = measure_headers(p, end, &headers, &size)
            if code:
                return code
    if size > out.max_bytes - out.used:
        out.too_big_size = size
        out.too_big_offset = offset
        return FULL if out.rows else TOO_BIG
    if wants & WANT_KEY:
        if out.views:
            append_view(&out.key, key, key_size, s.owner, s.origin)
        elif append(&out.key, key, key_size):
            return NO_MEMORY
    if wants & WANT_VALUE:
        if out.views:
            append_view(&out.value, value, value_size, s.owner, s.origin)
        elif append(&out.value, value, value_size):
            return NO_MEMORY
    out.used += size
    if wants & WANT_HEADERS:
        if headers:
            return copy_headers(p, end, headers, out)
        (<int32_t *> out.lists.data)[out.rows + 1] = <int32_t> out.header_key.count
    return 0


cdef int fill_record(Section *s, Out *out) noexcept nogil:
    """Read the next record of the section and append it, unless it is out of range."""
    cdef int64_t size = 0, time_delta = 0, delta = 0, offset
    cdef const uint8_t *stop = s.data + s.size
    cdef const uint8_t *p = number(s.data + s.position, stop, 32, &size)
    cdef const uint8_t *end
    cdef int code
    if p == NULL:
        return NUMBER
    if size < SMALLEST_RECORD - 1 or size > stop - p:
        return RECORD_LENGTH
    end = p + size
    p = number(p + 1, end, 64, &time_delta)
    if p == NULL:
        return NUMBER
    p = number(p, end, 32, &delta)
    if p == NULL:
        return NUMBER
    if delta < 0 or delta > s.last_delta:
        return RECORD_OFFSET
    offset = s.base_offset + delta
    if s.from_offset <= offset < s.until_offset:
        if out.rows == out.max_rows:
            return FULL
        if out.wants & TIME:
            code = fill_time(s, out, time_delta)
            if code:
                return code
        if out.wants & (WANT_KEY | WANT_VALUE | WANT_HEADERS):
            code = fill_bytes(s, out, p, end, offset)
            if code:
                # The row is not added after all, and neither is its null time.
                if out.wants & TIME:
                    forget_time(out)
                return code
        if out.wants & OFFSET:
            (<int64_t *> out.offset.data)[out.rows] = offset
        out.rows += 1
    s.position = end - s.data
    s.left -= 1
    return 0


cdef void forget_time(Out *out) noexcept nogil:
    if (<int64_t *> out.time.data)[out.rows] == -1:
        out.time_valid.data[out.rows >> 3] |= 1 << (out.rows & 7)
        out.time_nulls -= 1


cdef void repeat(Buf *buf, int64_t start, int64_t stop, int32_t value) noexcept nogil:
    cdef int32_t *out = <int32_t *> buf.data
    cdef int64_t i
    for i in range(start, stop):
        out[i] = value


cdef int fill(Section *sections, int64_t count, Out *out, int64_t *finished) noexcept nogil:
    """Append the records of all sections until one fails; return why, and how many are done."""
    cdef Section *s
    cdef int64_t first
    cdef int code = 0
    while finished[0] < count:
        s = sections + finished[0]
        first = out.rows
        while s.left and code == 0:
            code = fill_record(s, out)
        if out.wants & TOPIC:
            repeat(&out.topic, first, out.rows, s.topic)
        if out.wants & PARTITION:
            repeat(&out.partition, first, out.rows, s.partition)
        if out.wants & EPOCH:
            repeat(&out.epoch, first, out.rows, s.leader_epoch)
        if out.wants & TIME_TYPE:
            memset(out.time_type.data + first, s.append_time, out.rows - first)
        if code == 0 and s.position != s.size:
            code = TRAILING
        if code:
            return code
        finished[0] += 1
    return 0


cdef int make_columns(Out *out, int64_t rows, int64_t size) noexcept nogil:
    """Reserve room for rows of an estimated total size, which may be exceeded."""
    cdef int wants = out.wants
    cdef int bad = 0
    cdef int64_t width = 16 if out.views else 4
    if wants & TOPIC:
        bad |= reserve(&out.topic, 4 * rows)
    if wants & PARTITION:
        bad |= reserve(&out.partition, 4 * rows)
    if wants & EPOCH:
        bad |= reserve(&out.epoch, 4 * rows)
    if wants & TIME_TYPE:
        bad |= reserve(&out.time_type, rows)
    if wants & OFFSET:
        bad |= reserve(&out.offset, 8 * rows)
    if wants & TIME:
        bad |= reserve(&out.time, 8 * rows)
        bad |= reserve(&out.time_valid, (rows + 7) >> 3)
        if not bad:
            memset(out.time_valid.data, 0xFF, (rows + 7) >> 3)
    if wants & WANT_KEY:
        bad |= make_room(&out.key, rows, width)
        if not out.views:
            bad |= reserve(&out.key.data, size >> 3)
    if wants & WANT_VALUE:
        bad |= make_room(&out.value, rows, width)
        if not out.views:
            bad |= reserve(&out.value.data, size)
    if wants & WANT_HEADERS:
        bad |= reserve(&out.lists, 4 * (rows + 1))
        bad |= header_room(out, 16)
        bad |= reserve(&out.header_key.data, 64) | reserve(&out.header_value.data, 64)
        if not bad:
            (<int32_t *> out.lists.data)[0] = 0
    return NO_MEMORY if bad else 0


cdef void discard_columns(Out *out):
    release(&out.topic)
    release(&out.partition)
    release(&out.offset)
    release(&out.time)
    release(&out.time_valid)
    release(&out.time_type)
    release(&out.epoch)
    release(&out.lists)
    discard(&out.key)
    discard(&out.value)
    discard(&out.header_key)
    discard(&out.header_value)


cdef class View:
    """A buffer owned by another object, held as long as this lives."""

    cdef Py_buffer buf
    cdef bint held

    def __cinit__(self, owner):
        PyObject_GetBuffer(owner, &self.buf, PyBUF_SIMPLE)
        self.held = True

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.buf)


cdef class Decoder:
    """Turns batches into columns; see `_columns.pyi` for the contract of each call."""

    cdef object _reading, _fetched, _fault, _schema
    cdef str _topic
    cdef dict _topics
    cdef object _names
    cdef list _bits, _types, _owners, _owner_views, _aborted
    cdef dict _aborting
    cdef View _view
    cdef Section *_sections
    cdef int64_t _section_count, _section_cap, _pending_bytes, _pending_rows, _position
    cdef int64_t _max_bytes, _max_rows, _from_offset, _until_offset
    cdef int32_t _partition, _topic_index
    cdef int _wants
    cdef bint _views, _check_crc, _shared_owner

    def __init__(self, reading):
        self._reading = reading
        self._schema = reading.schema()
        self._bits = [_BITS[name] for name in reading.columns]
        self._types = self._schema.types
        self._wants = sum(self._bits)
        self._views = reading.views
        self._check_crc = reading.check_crc
        self._max_bytes = reading.max_bytes
        self._max_rows = reading.max_rows
        self._topics = {}
        self._owners = []
        self._owner_views = []

    def __dealloc__(self):
        free(self._sections)

    def open(self, fetched):
        self._fetched = fetched
        self._topic = fetched.topic
        self._partition = fetched.partition
        self._from_offset = fetched.from_offset
        self._until_offset = fetched.until_offset
        self._topic_index = self._topics.setdefault(self._topic, len(self._topics))
        self._view = View(fetched.data)
        self._shared_owner = False
        self._position = 0
        self._aborted = None
        self._aborting = None
        if fetched.aborted:
            self._aborted = sorted(fetched.aborted, key=lambda entry: entry[1], reverse=True)
            self._aborting = {}  # by producer: the offset of its marker

    def take(self):
        while True:
            self._scan()
            if not self._is_full() and self._fault is None:
                return None
            rows = self.drain()
            if rows is not None:
                return rows
            if self._fault is not None:
                raise self._fault

    cdef bint _is_full(self):
        return self._pending_bytes >= self._max_bytes or self._pending_rows >= self._max_rows

    cdef object _scan(self):
        if self._fault is not None:
            return
        try:
            while self._position < self._view.buf.len and not self._is_full():
                self._scan_batch()
        except (Corrupt, ApiError) as fault:
            # The rows before the fault are valid, and are returned first.
            self._fault = fault

    cdef object _corrupt(self, int64_t offset, int what):
        return _reading.corrupt(self._topic, self._partition, offset, what)

    cdef object _scan_batch(self):
        cdef const uint8_t *p = <const uint8_t *> self._view.buf.buf + self._position
        cdef int64_t left = self._view.buf.len - self._position
        cdef int64_t size = 0, offset
        if left > 16 and p[16] != 2:
            raise _reading.bad_magic(self._topic, self._partition, get_i64(p), p[16])
        if left > 11:
            size = <int64_t> get_i32(p + 8) + 12
            if size < HEADER_BYTES:
                raise self._corrupt(get_i64(p), SHORT)
        if left < 12 or size > left:
            if not self._reading.allow_cut:
                offset = int.from_bytes(p[:min(left, 8)], "big", signed=True)
                raise self._corrupt(offset, CUT)
            self._position = self._view.buf.len
            return
        self._scan_whole(p, size)
        self._position += size

    cdef object _scan_whole(self, const uint8_t *p, int64_t size):
        cdef int64_t offset = get_i64(p), delta = get_i32(p + 23), count = get_i32(p + 57)
        cdef int attributes = (p[21] << 8) | p[22]
        if offset < 0 or delta < 0 or offset > INT64_MAX - delta:
            raise self._corrupt(offset, OFFSETS)
        if count < 0 or count > delta + 1:
            raise self._corrupt(offset, COUNT)
        if offset >= self._until_offset:
            return
        # The rest of the header is trusted only after this check, so that a flipped bit cannot hide
        # records.
        self._check(p, size, offset)
        if self._is_hidden(p, size, offset, offset + delta, attributes):
            return
        if offset + delta >= self._from_offset:
            self._add(p, size, attributes)

    cdef bint _is_hidden(
        self, const uint8_t *p, int64_t size, int64_t offset, int64_t last_offset, int attributes
    ) except -1:
        cdef int64_t marker
        if self._aborted is None:
            return (attributes & IS_CONTROL) != 0
        while self._aborted and self._aborted[len(self._aborted) - 1][1] <= last_offset:
            producer, _, marker = self._aborted.pop()
            self._aborting[producer] = marker
        producer = get_i64(p + 43)
        marker = self._aborting.get(producer, -1)
        if attributes & IS_CONTROL:
            if offset <= marker and self._is_abort(p, size, attributes):
                del self._aborting[producer]
            return True
        return (attributes & TRANSACTIONAL) != 0 and offset <= marker

    cdef bint _is_abort(self, const uint8_t *p, int64_t size, int attributes) except -1:
        records = self._inflate(p, size, attributes)
        cdef View view = View(records)
        cdef const uint8_t *at = <const uint8_t *> view.buf.buf
        cdef const uint8_t *end = at + view.buf.len
        cdef int64_t length = 0
        at = number(at, end, 32, &length)
        if at != NULL and at < end:
            at = number(at + 1, end, 64, &length)
            if at != NULL:
                at = number(at, end, 32, &length)
            if at != NULL:
                at = number(at, end, 32, &length)
        else:
            at = NULL
        if at == NULL or length < 4 or length > end - at:
            raise self._corrupt(get_i64(p), CONTROL)
        return at[2] == 0 and at[3] == 0

    cdef object _check(self, const uint8_t *p, int64_t size, int64_t offset):
        if self._check_crc:
            covered = PyMemoryView_FromMemory(<char *> p + 21, size - 21, PyBUF_READ)
            if <uint32_t> crc32c(covered) != <uint32_t> get_i32(p + 17):
                raise self._corrupt(offset, CRC)

    cdef object _inflate(self, const uint8_t *p, int64_t size, int attributes):
        """Return the records as a separate object if they are compressed, else a view."""
        cdef int codec = attributes & 7
        packed = PyMemoryView_FromMemory(
            <char *> p + HEADER_BYTES, size - HEADER_BYTES, PyBUF_READ
        )
        if codec == 0:
            return packed
        limit = self._reading.max_inflated_bytes
        return _reading.inflate(self._fetched, get_i64(p), codec, packed, limit)

    cdef object _add(self, const uint8_t *p, int64_t size, int attributes):
        cdef Section s
        cdef View view
        s.base_offset, s.leader_epoch = get_i64(p), get_i32(p + 12)
        s.last_delta, s.left = get_i32(p + 23), get_i32(p + 57)
        s.base_timestamp, s.max_timestamp = get_i64(p + 27), get_i64(p + 35)
        s.append_time = (attributes & APPEND_TIME) != 0
        s.from_offset, s.until_offset = self._from_offset, self._until_offset
        s.partition, s.topic = self._partition, self._topic_index
        s.position = 0
        if attributes & 7:
            records = self._inflate(p, size, attributes)
            view = View(records)
            s.data = s.origin = <const uint8_t *> view.buf.buf
            s.size = view.buf.len
            self._own(records, view)
            self._shared_owner = False
        else:
            s.data = p + HEADER_BYTES
            s.size = size - HEADER_BYTES
            s.origin = self._own_fetched(s.data)
        s.owner = <int32_t> (len(self._owners) - 1)
        if s.left * SMALLEST_RECORD > s.size:
            raise self._corrupt(s.base_offset, COUNT)
        self._push(&s)

    cdef const uint8_t *_own_fetched(self, const uint8_t *data) except NULL:
        """Keep the fetched data alive; return the base address of views into it."""
        cdef const uint8_t *start = <const uint8_t *> self._view.buf.buf
        if self._view.buf.len > INT32_MAX:
            # A view's offset has 32 bits, so it is relative to the batch.
            self._own(memoryview(self._fetched.data).cast("B")[data - start:], self._view)
            return data
        if not self._shared_owner:
            self._own(self._fetched.data, self._view)
            self._shared_owner = True
        return start

    cdef object _own(self, owner, View view):
        self._owners.append(owner)
        self._owner_views.append(view)

    cdef object _push(self, Section *s):
        cdef int64_t cap
        cdef void *grown
        if self._section_count == self._section_cap:
            cap = 2 * self._section_cap + 16
            grown = realloc(self._sections, cap * sizeof(Section))
            if grown == NULL:
                raise MemoryError
            self._sections = <Section *> grown
            self._section_cap = cap
        self._sections[self._section_count] = s[0]
        self._section_count += 1
        self._pending_bytes += s.size
        self._pending_rows += s.left

    def drain(self):
        cdef Out out
        cdef int64_t finished = 0
        cdef int code
        cdef int64_t size = min(self._pending_bytes, self._max_bytes)
        rows = None
        if self._section_count == 0:
            return rows
        memset(&out, 0, sizeof(out))
        out.wants, out.views = self._wants, self._views
        out.max_bytes, out.max_rows = self._max_bytes, self._max_rows
        try:
            code = make_columns(&out, min(self._pending_rows, self._max_rows), size)
            if code == 0:
                with nogil:
                    code = fill(self._sections, self._section_count, &out, &finished)
            if code == NO_MEMORY:
                raise MemoryError(f"no memory for {size} bytes of columns")
            if code == CHANGED or (code and out.rows == 0):
                self._raise_fault(self._sections[finished], code, &out)
            if out.rows:
                out.owners = self._sections[min(finished, self._section_count - 1)].owner + 1
                rows = self._build(&out)
        finally:
            discard_columns(&out)
        self._forget(finished)
        return rows

    cdef object _raise_fault(self, Section s, int code, Out *out):
        topic = list(self._topics)[s.topic]
        if code == TOO_BIG:
            raise _reading.too_big(
                topic, s.partition, out.too_big_offset, out.too_big_size, self._max_bytes
            )
        if code == CHANGED:
            raise RuntimeError(f"{topic}-{s.partition}: the data was changed while it was read")
        raise _reading.corrupt(topic, s.partition, s.base_offset, code)

    cdef object _forget(self, int64_t finished):
        """Drop the sections that were fully read, and the data that only they needed."""
        cdef int64_t i, left = self._section_count - finished
        cdef int32_t first
        memmove(self._sections, self._sections + finished, left * sizeof(Section))
        self._section_count = left
        self._pending_bytes = self._pending_rows = 0
        first = self._sections[0].owner if left else <int32_t> len(self._owners)
        for i in range(left):
            self._sections[i].owner -= first
            self._pending_bytes += self._sections[i].size - self._sections[i].position
            self._pending_rows += self._sections[i].left
        del self._owners[:first]
        del self._owner_views[:first]
        if not self._owners:
            self._shared_owner = False

    cdef object _build(self, Out *out):
        arrays = [self._column(bit, kind, out) for bit, kind in zip(self._bits, self._types)]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    cdef object _column(self, int bit, kind, Out *out):
        cdef int64_t n = out.rows
        if bit == TOPIC:
            return self._topic_column(out)
        if bit == PARTITION:
            return plain(kind, n, &out.partition, 4)
        if bit == OFFSET:
            return plain(kind, n, &out.offset, 8)
        if bit == TIME_TYPE:
            return plain(kind, n, &out.time_type, 1)
        if bit == EPOCH:
            return plain(kind, n, &out.epoch, 4)
        if bit == TIME:
            valid = hand_over(&out.time_valid, (n + 7) >> 3) if out.time_nulls else None
            buffers = [valid, hand_over(&out.time, 8 * n)]
            return pa.Array.from_buffers(kind, n, buffers, out.time_nulls)
        if bit == WANT_HEADERS:
            return headers_column(kind, out)
        return self._bytes_column(kind, &out.key if bit == WANT_KEY else &out.value, out.owners)

    cdef object _topic_column(self, Out *out):
        indices = plain(_INT32, out.rows, &out.topic, 4)
        if self._names is None or len(self._names) < len(self._topics):
            self._names = pa.array(list(self._topics), _STRING)
        return pa.DictionaryArray.from_arrays(indices, self._names, safe=False)

    cdef object _bytes_column(self, kind, Varlen *column, int64_t owners):
        if not self._views:
            return varlen(kind, column)
        valid = hand_over(&column.valid, (column.count + 7) >> 3) if column.nulls else None
        buffers = [valid, hand_over(&column.ends, 16 * column.count)]
        buffers += [pa.py_buffer(owner) for owner in self._owners[:owners]]
        return pa.Array.from_buffers(kind, column.count, buffers, column.nulls)


cdef object plain(kind, int64_t rows, Buf *buf, int width):
    return pa.Array.from_buffers(kind, rows, [None, hand_over(buf, rows * width)], 0)


cdef object varlen(kind, Varlen *column):
    valid = hand_over(&column.valid, (column.count + 7) >> 3) if column.nulls else None
    ends = hand_over(&column.ends, 4 * (column.count + 1))
    data = hand_over(&column.data, column.used)
    return pa.Array.from_buffers(kind, column.count, [valid, ends, data], column.nulls)


cdef object headers_column(kind, Out *out):
    cdef int64_t count = out.header_key.count
    content = varlen(_BINARY, &out.header_value)
    pairs = [readable(varlen(_STRING, &out.header_key)), content]
    children = [pa.Array.from_buffers(kind.value_type, count, [None], 0, children=pairs)]
    lists = hand_over(&out.lists, 4 * (out.rows + 1))
    return pa.Array.from_buffers(kind, out.rows, [None, lists], 0, children=children)


cdef object readable(keys):
    try:
        keys.validate(full=True)
        return keys
    except pa.ArrowInvalid:
        # C clients may write any bytes as a header's key, but Arrow's strings must be UTF-8.
        known = keys.view(_BINARY).to_pylist()
        return pa.array([key.decode("utf-8", "replace") for key in known], _STRING)


# Encoding.

cdef struct Column:
    bint present
    const uint8_t *valid
    const uint8_t *ends
    const uint8_t *data
    int64_t first
    bint wide


cdef struct Rows:
    int64_t count
    int64_t timestamp_ms
    Column key
    Column value
    Column time
    Column offset
    Column lists
    Column pairs
    Column header_key
    Column header_value


cdef inline bint is_null(Column *c, int64_t i) noexcept nogil:
    i += c.first
    return c.valid != NULL and not (c.valid[i >> 3] >> (i & 7)) & 1


cdef inline int64_t end_of(Column *c, int64_t i) noexcept nogil:
    if c.wide:
        return (<const int64_t *> c.ends)[c.first + i]
    return (<const int32_t *> c.ends)[c.first + i]


cdef inline int64_t int64_of(Column *c, int64_t i) noexcept nogil:
    return (<const int64_t *> c.ends)[c.first + i]


cdef inline int64_t length_of(Column *c, int64_t i) noexcept nogil:
    """Return a value's length, -1 for null."""
    if not c.present or is_null(c, i):
        return -1
    return end_of(c, i + 1) - end_of(c, i)


cdef inline int number_size(int64_t value) noexcept nogil:
    cdef uint64_t left = (<uint64_t> value << 1) ^ <uint64_t> (value >> 63)
    cdef int size = 1
    while left > 0x7F:
        left >>= 7
        size += 1
    return size


cdef inline uint8_t *put_number(uint8_t *p, int64_t value) noexcept nogil:
    cdef uint64_t left = (<uint64_t> value << 1) ^ <uint64_t> (value >> 63)
    while left > 0x7F:
        p[0] = <uint8_t> (left & 0x7F) | 0x80
        left >>= 7
        p += 1
    p[0] = <uint8_t> left
    return p + 1


cdef inline int64_t bytes_size(Column *c, int64_t i) noexcept nogil:
    cdef int64_t length = length_of(c, i)
    return number_size(length) + (length if length > 0 else 0)


cdef inline uint8_t *put_bytes(uint8_t *p, Column *c, int64_t i) noexcept nogil:
    cdef int64_t length = length_of(c, i)
    p = put_number(p, length)
    if length > 0:
        memcpy(p, c.data + end_of(c, i), length)
        p += length
    return p


cdef inline int64_t time_of(Rows *rows, int64_t i) noexcept nogil:
    if not rows.time.present or is_null(&rows.time, i):
        return rows.timestamp_ms
    return int64_of(&rows.time, i)


cdef inline void header_range(Rows *rows, int64_t i, int64_t *start, int64_t *stop) noexcept nogil:
    start[0] = stop[0] = 0
    if rows.lists.present and not is_null(&rows.lists, i):
        start[0] = end_of(&rows.lists, i)
        stop[0] = end_of(&rows.lists, i + 1)


cdef int64_t body_size(Rows *rows, int64_t i, int64_t time_delta, int64_t delta) noexcept nogil:
    """Return the size of a record without its length, or -1 for a bad header."""
    cdef int64_t start, stop, j
    cdef int64_t size = 1 + number_size(time_delta) + number_size(delta)
    size += bytes_size(&rows.key, i) + bytes_size(&rows.value, i)
    header_range(rows, i, &start, &stop)
    size += number_size(stop - start)
    for j in range(start, stop):
        if is_null(&rows.pairs, j) or is_null(&rows.header_key, j):
            return -1
        size += bytes_size(&rows.header_key, j) + bytes_size(&rows.header_value, j)
    return size


cdef struct Plan:
    # The contents of one batch.
    int64_t start
    int64_t row
    int64_t base_offset
    int64_t last_delta
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t size
    int64_t refused_size


cdef int measure_row(Rows *rows, Plan *plan, int64_t limit) noexcept nogil:
    cdef int64_t i = plan.row, delta = i - plan.start, time = time_of(rows, i), size
    if rows.offset.present:
        if plan.base_offset < 0 or int64_of(&rows.offset, i) - plan.base_offset <= plan.last_delta:
            return BAD_OFFSET
        delta = int64_of(&rows.offset, i) - plan.base_offset
    if time < -1 or time > LAST_TIMESTAMP:
        return BAD_TIMESTAMP
    size = body_size(rows, i, time - plan.base_timestamp, delta)
    if size < 0:
        return BAD_HEADER
    size += number_size(size)
    if size > limit and i == plan.start:
        plan.refused_size = size
        return TOO_LARGE
    if plan.size + size > limit or delta > INT32_MAX:
        return NO_ROOM
    plan.size += size
    plan.last_delta = delta
    plan.max_timestamp = max(plan.max_timestamp, time)
    plan.row += 1
    return 0


cdef uint8_t *put_row(Rows *rows, Plan *plan, int64_t i, uint8_t *p) noexcept nogil:
    cdef int64_t start, stop, j, delta = i - plan.start
    cdef int64_t time_delta = time_of(rows, i) - plan.base_timestamp
    if rows.offset.present:
        delta = int64_of(&rows.offset, i) - plan.base_offset
    p = put_number(p, body_size(rows, i, time_delta, delta))
    p[0] = 0
    p = put_number(p + 1, time_delta)
    p = put_number(p, delta)
    p = put_bytes(p, &rows.key, i)
    p = put_bytes(p, &rows.value, i)
    header_range(rows, i, &start, &stop)
    p = put_number(p, stop - start)
    for j in range(start, stop):
        p = put_bytes(p, &rows.header_key, j)
        p = put_bytes(p, &rows.header_value, j)
    return p


cdef class Packer:
    """Turns rows into records; see `_columns.pyi` for the contract of each call."""

    cdef Rows rows
    cdef list keep

    def __init__(self, rows, timestamp_ms):
        self.keep = []
        memset(&self.rows, 0, sizeof(Rows))
        self.rows.count = rows.num_rows
        self.rows.timestamp_ms = timestamp_ms
        names = rows.schema.names
        if "key" in names:
            self._bind(&self.rows.key, rows.column("key"))
        if "value" in names:
            self._bind(&self.rows.value, rows.column("value"))
        if "timestamp" in names:
            self._bind(&self.rows.time, rows.column("timestamp"))
        if "offset" in names:
            self._bind(&self.rows.offset, rows.column("offset"))
        if "headers" in names:
            headers = rows.column("headers")
            self._bind(&self.rows.lists, headers)
            self._bind(&self.rows.pairs, headers.values)
            self._bind(&self.rows.header_key, headers.values.field(0))
            self._bind(&self.rows.header_value, headers.values.field(1))

    cdef object _bind(self, Column *column, array):
        """Record the addresses of the array's buffers, and keep the array alive."""
        self.keep.append(array)
        buffers = array.buffers()
        column.present = True
        column.first = array.offset
        column.wide = array.type.equals(_LARGE)
        column.valid = address(buffers[0])
        if len(buffers) > 1:
            column.ends = address(buffers[1])
        if len(buffers) > 2:
            column.data = address(buffers[2])

    def pack(self, int64_t start, int64_t base_offset, int64_t limit):
        cdef Plan plan
        cdef int code = 0
        cdef int64_t i
        cdef uint8_t *p
        if not 0 <= start < self.rows.count:
            raise IndexError(f"row {start} of {self.rows.count}")
        memset(&plan, 0, sizeof(plan))
        plan.start = plan.row = start
        plan.base_offset = base_offset
        if self.rows.offset.present:
            plan.base_offset = int64_of(&self.rows.offset, start)
        plan.last_delta = -1
        plan.base_timestamp = plan.max_timestamp = time_of(&self.rows, start)
        with nogil:
            while plan.row < self.rows.count and code == 0:
                code = measure_row(&self.rows, &plan, limit)
        if code and code != NO_ROOM:
            raise refusal(code, &plan, limit)
        batch = PyByteArray_FromStringAndSize(NULL, HEADER_BYTES + plan.size)
        p = <uint8_t *> PyByteArray_AS_STRING(batch)
        with nogil:
            memset(p, 0, HEADER_BYTES)
            p += HEADER_BYTES
            for i in range(start, plan.row):
                p = put_row(&self.rows, &plan, i, p)
        return (
            batch, plan.row - start, plan.base_offset, plan.last_delta, plan.base_timestamp,
            plan.max_timestamp,
        )


cdef const uint8_t *address(buffer):
    cdef size_t at = 0 if buffer is None else buffer.address
    return <const uint8_t *> at


cdef object refusal(int code, Plan *plan, int64_t limit):
    if code == TOO_LARGE:
        return too_large(plan.row, plan.refused_size, limit)
    if code == BAD_OFFSET:
        return bad_offset(plan.row)
    if code == BAD_TIMESTAMP:
        return bad_timestamp(plan.row)
    return bad_header(plan.row)
