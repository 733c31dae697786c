# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, freethreading_compatible=False
"""The hot loops over batches and records. The contract is `_kernel.pyi`, the oracle `twins/kerneltwin.py`.

Every function works on (pointer, length). No memory is allocated for a count before the bytes that
back it were seen. Every addition that input can control is checked first.
"""

from cpython.buffer cimport PyBUF_READ, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_Check, PyTuple_GET_SIZE, PyTuple_SET_ITEM
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from rookery.records._batch cimport (
    BAD_COUNT, BAD_FIELD, BAD_HEADER, BAD_LENGTH, BAD_OFFSET, BAD_TIMESTAMP, BAD_VARINT, CONTROL,
    FINE, LEFT_OVER, LOG_APPEND_TIME, MIN_RECORD, NO_HEADER_KEY, TRANSACTIONAL, Batch, Fault,
    fault_text, get_field, get_i16, get_i32, get_i64, get_u32, get_unsigned, get_varint,
    get_varlong, set_varlong, to_batch,
)

from crc32c import crc32c

from rookery.errors import ApiError, Corrupt, ErrorCode

# Measured: a patch costs 0.6 to 0.7 us for any size. Computing the CRC again reads the bytes twice,
# so that damage stays visible (see `batch.restamp`): 0.6 us at 100 bytes, 0.8 at 1 KB, 2.5 at 16.
PATCH_FROM_BYTES = 0

cdef enum:
    FROM_PRODUCER = 1
    CHECK_CRC = 2
    CHECK_RECORDS = 4
    CODECS_SHIFT = 8
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4
    HEADER_SIZE = 61
    OVERHEAD = 12
    MAGIC_AT = 16
    CRC_FROM = 21
    INT32_LIMIT = 0x7FFFFFFF
    NO_TIMESTAMP = -1


cdef const char* XERIAL = b"\x82SNAPPY\0"


# ---- batch headers


cdef struct Header:
    int64_t base_offset
    int32_t length
    int32_t leader_epoch
    uint32_t crc
    int attributes
    int32_t last_offset_delta
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t producer_id
    int producer_epoch
    int32_t base_sequence
    int32_t count


cdef struct Totals:
    int64_t lowest
    int64_t highest
    int64_t offset_of_highest
    int64_t null_keys
    Py_ssize_t index
    Py_ssize_t at


cdef void read_header(const uint8_t* p, Header* header) noexcept nogil:
    header.base_offset = get_i64(p)
    header.length = get_i32(p + 8)
    header.leader_epoch = get_i32(p + 12)
    header.crc = get_u32(p + 17)
    header.attributes = get_i16(p + 21)
    header.last_offset_delta = get_i32(p + 23)
    header.base_timestamp = get_i64(p + 27)
    header.max_timestamp = get_i64(p + 35)
    header.producer_id = get_i64(p + 43)
    header.producer_epoch = get_i16(p + 51)
    header.base_sequence = get_i32(p + 53)
    header.count = get_i32(p + 57)


cdef tuple header_row(Header* h, Py_ssize_t at):
    return (
        h.base_offset, h.length, h.leader_epoch, 2, h.crc, h.attributes, h.last_offset_delta,
        h.base_timestamp, h.max_timestamp, h.producer_id, h.producer_epoch, h.base_sequence,
        h.count, at,
    )


def scan(data, int rules, /):
    """Parse and check the headers of all batches; also return the final fault and its position."""
    cdef Py_buffer buffer
    cdef list headers = []
    cdef Py_ssize_t at = 0
    cdef str fault = ""
    PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
    try:
        while at < buffer.len:
            fault = scan_one(&buffer, &at, rules, headers)
            if fault:
                break
    finally:
        PyBuffer_Release(&buffer)
    return headers, fault, at


cdef str scan_one(Py_buffer* buffer, Py_ssize_t* at, int rules, list headers):
    cdef Header header
    cdef const uint8_t* p = <const uint8_t*>buffer.buf + at[0]
    cdef str fault = frame_fault(p, buffer.len - at[0])
    if fault:
        return fault
    read_header(p, &header)
    if rules & CHECK_CRC and <uint32_t>checksum(p, &header) != header.crc:
        return "crc"
    fault = header_fault(&header, rules)
    if fault:
        return fault
    if rules & CHECK_RECORDS:
        fault = body_fault(p + HEADER_SIZE, &header)
        if fault:
            return fault
    headers.append(header_row(&header, at[0]))
    at[0] += OVERHEAD + header.length
    return ""


cdef object checksum(const uint8_t* p, Header* header):
    # The view does not outlive this call, and the caller holds the buffer.
    return crc32c(
        PyMemoryView_FromMemory(
            <char*>p + CRC_FROM, <Py_ssize_t>header.length + OVERHEAD - CRC_FROM, PyBUF_READ
        )
    )


cdef str frame_fault(const uint8_t* p, Py_ssize_t left):
    cdef int32_t length
    if left < OVERHEAD:
        return "incomplete"
    if left > MAGIC_AT and p[MAGIC_AT] != 2:
        return ("magic 0", "magic 1")[p[MAGIC_AT]] if p[MAGIC_AT] < 2 else "magic"
    length = get_i32(p + 8)
    if length < HEADER_SIZE - OVERHEAD:
        return "length"
    return "incomplete" if length > left - OVERHEAD else ""


cdef str header_fault(Header* h, int rules):
    cdef int codec = h.attributes & 7
    if not (rules >> CODECS_SHIFT >> codec) & 1:
        return "codec"
    if codec == 0 and h.count > (<Py_ssize_t>h.length + OVERHEAD - HEADER_SIZE) // MIN_RECORD:
        return "count"
    return producer_fault(h) if rules & FROM_PRODUCER else stored_fault(h)


cdef str stored_fault(Header* h):
    if h.count < 0 or h.last_offset_delta < 0 or h.count - 1 > h.last_offset_delta:
        return "count"
    if h.base_offset < 0 or h.base_offset > INT64_MAX - h.last_offset_delta:
        return "offset"
    return ""


cdef str producer_fault(Header* h):
    if h.attributes & CONTROL:
        return "control"
    if h.attributes & LOG_APPEND_TIME:
        return "append time"
    if h.base_offset != 0:
        return "base offset"
    if h.count <= 0 or h.count - 1 != h.last_offset_delta:
        return "count"
    if h.producer_id < -1:
        return "producer"
    if h.producer_id == -1:
        return "transaction" if h.attributes & TRANSACTIONAL else ""
    return "sequence" if h.producer_epoch < 0 or h.base_sequence < 0 else ""


cdef str body_fault(const uint8_t* p, Header* h):
    """Check uncompressed records; of compressed ones, check only the first bytes."""
    cdef Py_ssize_t size = <Py_ssize_t>h.length + OVERHEAD - HEADER_SIZE
    cdef Batch batch
    cdef Totals totals
    if h.attributes & 7:
        return "" if is_packed(p, size, h) else "packed"
    batch.base_offset = h.base_offset
    batch.base_timestamp = h.base_timestamp
    batch.append_time = h.max_timestamp
    batch.has_append_time = h.attributes & LOG_APPEND_TIME
    batch.last_offset_delta = h.last_offset_delta
    batch.count = h.count
    if walk_all(p, size, &batch, &totals) != FINE or totals.at != size:
        return "records"
    return ""


cdef bint is_packed(const uint8_t* p, Py_ssize_t size, Header* h) noexcept nogil:
    """Return whether bytes start like the output of a batch's codec."""
    cdef int codec = h.attributes & 7
    if h.count == 0:
        return True
    if size < 4:
        return codec == SNAPPY and is_snappy(p, size, h.count)
    if codec == GZIP:
        return p[0] == 0x1F and p[1] == 0x8B and p[2] == 8
    if codec == SNAPPY:
        return is_snappy(p, size, h.count)
    if codec == LZ4:
        return get_u32(p) == <uint32_t>0x04224D18
    if codec == ZSTD:
        # The second kind may come first: a skippable frame.
        return get_u32(p) == <uint32_t>0x28B52FFD or (
            p[0] >> 4 == 5 and p[1] == 0x2A and p[2] == 0x4D and p[3] == 0x18
        )
    return True


cdef bint is_snappy(const uint8_t* p, Py_ssize_t size, int32_t count) noexcept nogil:
    """Return whether it is xerial's framing, or raw with a size that the records can have."""
    cdef Py_ssize_t at = 0
    cdef uint64_t stated = 0
    if size >= 8 and memcmp(p, XERIAL, 8) == 0:
        return True
    if get_unsigned(p, size, &at, 32, &stated) != FINE:
        return False
    return <uint64_t>MIN_RECORD * <uint64_t>count <= stated <= <uint64_t>INT32_LIMIT


# ---- reading records


cdef struct Span:
    Py_ssize_t end
    int64_t timestamp
    int64_t offset
    int32_t key_size
    Py_ssize_t key_at
    int32_t value_size
    Py_ssize_t value_at
    int32_t headers
    Py_ssize_t headers_at


cdef Fault skip_headers(
    const uint8_t* p, Py_ssize_t end, Py_ssize_t* at, int32_t count
) noexcept nogil:
    cdef int32_t i, size
    cdef Fault fault
    if count < 0 or count > (end - at[0]) // 2:
        return BAD_COUNT
    for i in range(count):
        fault = get_field(p, end, at, &size, BAD_HEADER)
        if fault != FINE:
            return fault
        if size < 0:
            return NO_HEADER_KEY
        at[0] += size
        fault = get_field(p, end, at, &size, BAD_HEADER)
        if fault != FINE:
            return fault
        if size > 0:
            at[0] += size
    return FINE


cdef Fault get_span(
    const uint8_t* p, Py_ssize_t size, Py_ssize_t at, Batch* batch, int64_t last, Span* span
) noexcept nogil:
    """Find one record's parts; its offset and timestamp are deltas until `place` is called."""
    cdef int32_t length, delta
    cdef Py_ssize_t end
    cdef Fault fault
    if get_varint(p, size, &at, &length) != FINE:
        return BAD_VARINT
    if length < 0 or length > size - at:
        return BAD_LENGTH
    end = at + length
    span.end = end
    at += 1
    if get_varlong(p, end, &at, &span.timestamp) != FINE:
        return BAD_VARINT
    if get_varint(p, end, &at, &delta) != FINE:
        return BAD_VARINT
    fault = get_field(p, end, &at, &span.key_size, BAD_FIELD)
    if fault != FINE:
        return fault
    span.key_at = at
    if span.key_size > 0:
        at += span.key_size
    fault = get_field(p, end, &at, &span.value_size, BAD_FIELD)
    if fault != FINE:
        return fault
    span.value_at = at
    if span.value_size > 0:
        at += span.value_size
    if get_varint(p, end, &at, &span.headers) != FINE:
        return BAD_VARINT
    span.headers_at = at
    fault = skip_headers(p, end, &at, span.headers)
    if fault != FINE:
        return fault
    if at != end:
        return LEFT_OVER
    return place(batch, delta, last, span)


cdef inline Fault place(Batch* batch, int32_t delta, int64_t last, Span* span) noexcept nogil:
    cdef int64_t base = batch.base_timestamp
    if delta <= last or delta > batch.last_offset_delta or batch.base_offset > INT64_MAX - delta:
        return BAD_OFFSET
    span.offset = batch.base_offset + delta
    if span.timestamp > 0:
        if base > INT64_MAX - span.timestamp:
            return BAD_TIMESTAMP
    elif base < INT64_MIN - span.timestamp:
        return BAD_TIMESTAMP
    span.timestamp += base
    return FINE


cdef object too_many(int32_t count, Py_ssize_t size):
    return Corrupt(f"{count} records cannot be in {size} bytes")


cdef object broken(Py_ssize_t index, Fault fault):
    return Corrupt(f"record {index}: {fault_text(fault)}")


cdef Fault walk_all(
    const uint8_t* p, Py_ssize_t size, Batch* batch, Totals* totals
) noexcept nogil:
    cdef Span span
    cdef Fault fault
    cdef int64_t last = -1
    totals.lowest = INT64_MAX
    totals.highest = INT64_MIN
    totals.offset_of_highest = -1
    totals.null_keys = 0
    totals.index = 0
    totals.at = 0
    while totals.index < batch.count:
        fault = get_span(p, size, totals.at, batch, last, &span)
        if fault != FINE:
            return fault
        last = span.offset - batch.base_offset
        totals.at = span.end
        totals.index += 1
        totals.null_keys += span.key_size < 0
        if span.timestamp < totals.lowest and span.timestamp != NO_TIMESTAMP:
            totals.lowest = span.timestamp
        if span.timestamp > totals.highest:
            totals.highest = span.timestamp
            totals.offset_of_highest = span.offset
    return FINE


def walk(data, header, /):
    """Check every record; return min and max timestamp, offset of the max, and null keys."""
    cdef Py_buffer buffer
    cdef Batch batch
    cdef Totals totals
    cdef Fault fault
    to_batch(header, &batch)
    PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
    try:
        if batch.count > buffer.len // MIN_RECORD:
            raise too_many(batch.count, buffer.len)
        with nogil:
            fault = walk_all(<const uint8_t*>buffer.buf, buffer.len, &batch, &totals)
        if fault != FINE:
            raise broken(totals.index, fault)
        if totals.at != buffer.len:
            raise Corrupt("bytes are left over after the last record")
    finally:
        PyBuffer_Release(&buffer)
    # There were no records; or all are at the lowest time of all, which is higher than none.
    if totals.offset_of_highest < 0:
        return -1, -1, -1, 0
    lowest = -1 if totals.lowest == INT64_MAX else totals.lowest
    return lowest, totals.highest, totals.offset_of_highest, totals.null_keys


cdef class _Records:
    """Iterates over the records of one batch, creating each on demand."""

    cdef Py_buffer buffer
    cdef bint is_open
    cdef Batch batch
    cdef Py_ssize_t at
    cdef int32_t index
    cdef int64_t last
    cdef type make

    def __cinit__(self, data, header, type make not None):
        if not issubclass(make, tuple):
            raise TypeError("records are made as a tuple class")
        to_batch(header, &self.batch)
        PyObject_GetBuffer(data, &self.buffer, PyBUF_SIMPLE)
        self.is_open = True
        self.make = make
        self.at = 0
        self.index = 0
        self.last = -1

    def __dealloc__(self):
        self.close()

    cdef void close(self):
        if self.is_open:
            self.is_open = False
            PyBuffer_Release(&self.buffer)

    def __iter__(self):
        return self

    def __next__(self):
        cdef Span span
        cdef Fault fault
        if not self.is_open:
            raise StopIteration
        if self.index == 0 and self.batch.count > self.buffer.len // MIN_RECORD:
            error = too_many(self.batch.count, self.buffer.len)
            self.close()
            raise error
        if self.index >= self.batch.count:
            self.finish()
        fault = get_span(
            <const uint8_t*>self.buffer.buf, self.buffer.len, self.at, &self.batch, self.last, &span
        )
        if fault != FINE:
            self.close()
            raise broken(self.index, fault)
        row = self.row(&span)
        self.last = span.offset - self.batch.base_offset
        self.at = span.end
        self.index += 1
        return row

    cdef int finish(self) except -1:
        cdef bint is_whole = self.at == self.buffer.len
        self.close()
        if is_whole:
            raise StopIteration
        raise Corrupt("bytes are left over after the last record")

    cdef object row(self, Span* span):
        cdef const char* p = <const char*>self.buffer.buf
        cdef int64_t timestamp = span.timestamp
        if self.batch.has_append_time:
            timestamp = self.batch.append_time
        return new_row(
            self.make,
            cut(p + span.key_at, span.key_size),
            cut(p + span.value_at, span.value_size),
            get_headers(<const uint8_t*>p, span) if span.headers else (),
            timestamp,
            span.offset,
        )


cdef extern from "Python.h":
    # A borrowed reference, which Cython's own declaration would treat as a new one.
    PyObject* PyTuple_GET_ITEM(object row, Py_ssize_t index)


cdef extern from *:
    """
    static PyObject* rookery_new_row(PyTypeObject* type) { return type->tp_alloc(type, 5); }
    """
    object rookery_new_row(PyTypeObject* type)


cdef inline void put_item(object row, Py_ssize_t index, object item):
    Py_INCREF(item)
    PyTuple_SET_ITEM(row, index, item)


cdef object new_row(type make, object key, object value, object headers, timestamp, offset):
    # tuple's own constructor creates an instance of a subclass like this; here without the detour.
    row = rookery_new_row(<PyTypeObject*>make)
    put_item(row, 0, key)
    put_item(row, 1, value)
    put_item(row, 2, headers)
    put_item(row, 3, timestamp)
    put_item(row, 4, offset)
    return row


cdef inline object cut(const char* p, int32_t size):
    return None if size < 0 else PyBytes_FromStringAndSize(p, size)


cdef tuple get_headers(const uint8_t* p, Span* span):
    """Create the headers of a span; its lengths have been checked."""
    cdef Py_ssize_t at = span.headers_at
    cdef int32_t i, size = 0
    cdef list headers = []
    for i in range(span.headers):
        get_varint(p, span.end, &at, &size)
        # Bytes that are not UTF-8 must survive a rewrite, so they are kept, not replaced.
        name = PyUnicode_DecodeUTF8(<char*>p + at, size, "surrogateescape")
        at += size
        get_varint(p, span.end, &at, &size)
        headers.append((name, cut(<const char*>p + at, size)))
        if size > 0:
            at += size
    return tuple(headers)


def decode(data, header, make, /):
    """Yield every record as an instance of a tuple class with the fields of `RawRecord`."""
    return _Records(data, header, make)


# ---- writing records


cdef class _Output:
    """A growing byte buffer."""

    cdef uint8_t* data
    cdef Py_ssize_t size
    cdef Py_ssize_t room

    def __dealloc__(self):
        PyMem_Free(self.data)

    cdef int reserve(self, Py_ssize_t more) except -1:
        cdef Py_ssize_t room
        cdef uint8_t* data
        if more > INT32_LIMIT or self.size + more > <Py_ssize_t>INT32_LIMIT + 16:
            raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, "a batch cannot be 2 GiB long")
        if self.size + more <= self.room:
            return 0
        room = max(2 * self.room, self.size + more, 256)
        data = <uint8_t*>PyMem_Realloc(self.data, room)
        if data == NULL:
            raise MemoryError
        self.data = data
        self.room = room
        return 0

    cdef int put_varint(self, int64_t value) except -1:
        self.reserve(10)
        self.size += set_varlong(self.data + self.size, value)
        return 0

    cdef int put_bytes(self, object value, str what) except -1:
        if value is None:
            return self.put_varint(-1)
        if type(value) is bytes:
            return self.put(PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value))
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise TypeError(f"a {what} must be bytes or None, not {type(value).__name__}")
        contiguous = bytes(value)
        return self.put(PyBytes_AS_STRING(contiguous), PyBytes_GET_SIZE(contiguous))

    cdef int put(self, const char* p, Py_ssize_t size) except -1:
        self.put_varint(size)
        self.reserve(size)
        memcpy(self.data + self.size, p, size)
        self.size += size
        return 0

    cdef int put_headers(self, object headers) except -1:
        cdef tuple pairs = headers if type(headers) is tuple else tuple(headers)
        self.put_varint(len(pairs))
        for name, value in pairs:
            if not isinstance(name, str):
                raise TypeError(f"a header's key must be str, not {type(name).__name__}")
            self.put_bytes((<str>name).encode("utf-8", "surrogateescape"), "header's key")
            self.put_bytes(value, "header's value")
        return 0


cdef int64_t to_i64(object value) except? -2:
    if not isinstance(value, int):
        raise TypeError(
            f"a record's timestamp and offset must be int, not {type(value).__name__}"
        )
    try:
        return <int64_t>value
    except OverflowError:
        raise OverflowError(
            "a record's timestamp or offset does not fit into 64 bits"
        ) from None


cdef int64_t next_delta(int64_t last, int64_t offset, int64_t base) except -1:
    cdef uint64_t delta = <uint64_t>(last + 1)
    if offset != -1:
        delta = <uint64_t>offset - <uint64_t>base
    if (offset != -1 and offset < base) or <int64_t>delta <= last or delta > INT32_LIMIT:
        raise ValueError(f"offset {offset} cannot follow in a batch whose base is {base}")
    return <int64_t>delta


cdef int64_t timestamp_delta(int64_t timestamp, int64_t first) except? -2:
    cdef uint64_t delta = <uint64_t>timestamp - <uint64_t>first
    if (timestamp < first) != (<int64_t>delta < 0):
        raise ValueError(f"timestamps {first} and {timestamp} cannot be in one batch")
    return <int64_t>delta


def encode(records, base_offset, /):
    """Write records; return bytes, count, last offset delta, first and highest timestamp."""
    cdef _Output out = _Output()
    cdef _Output body = _Output()
    cdef int64_t timestamp, offset, delta = -1, first = -1, highest = INT64_MIN
    cdef int64_t base = to_i64(base_offset)
    cdef Py_ssize_t count = 0
    for record in records:
        if not PyTuple_Check(record) or PyTuple_GET_SIZE(record) != 5:
            raise TypeError("a record must be a tuple of key, value, headers, timestamp, offset")
        timestamp = to_i64(<object>PyTuple_GET_ITEM(record, 3))
        offset = to_i64(<object>PyTuple_GET_ITEM(record, 4))
        if count == 0:
            first = timestamp
        highest = max(highest, timestamp)
        delta = next_delta(delta, offset, base)
        body.size = 0
        body.reserve(1)
        body.data[0] = 0
        body.size = 1
        body.put_varint(timestamp_delta(timestamp, first))
        body.put_varint(delta)
        body.put_bytes(<object>PyTuple_GET_ITEM(record, 0), "key")
        body.put_bytes(<object>PyTuple_GET_ITEM(record, 1), "value")
        body.put_headers(<object>PyTuple_GET_ITEM(record, 2))
        out.put(<const char*>body.data, body.size)
        count += 1
    whole = PyBytes_FromStringAndSize(<const char*>out.data, out.size)
    return whole, count, delta, first, highest if count else -1


# ---- CRC-32C


cdef uint32_t POWERS[63]


cdef uint32_t multiply(uint32_t left, uint32_t right) noexcept nogil:
    """Multiply two polynomials modulo CRC-32C's; the highest bit is the lowest power."""
    cdef uint32_t product = 0
    while left:
        # Masks, not branches: the bits of a CRC cannot be predicted.
        product ^= right & (0 - (left >> 31))
        right = (right >> 1) ^ (<uint32_t>0x82F63B78 & (0 - (right & 1)))
        left <<= 1
    return product


cdef void fill_powers() noexcept nogil:
    cdef int i
    # x to the 8th is a step of one byte; each next entry is twice as far.
    POWERS[0] = 1 << 23
    for i in range(1, 63):
        POWERS[i] = multiply(POWERS[i - 1], POWERS[i - 1])


fill_powers()


def shift(crc, length, /):
    """Shift a CRC-32C past the given number of zero bytes."""
    cdef uint32_t result
    cdef uint64_t left
    cdef int i = 0
    if not 0 <= crc <= 0xFFFFFFFF or not 0 <= length <= INT64_MAX:
        raise OverflowError("a CRC has 32 bits and a length is not negative")
    result = crc
    left = length
    while left:
        if left & 1:
            result = multiply(POWERS[i], result)
        left >>= 1
        i += 1
    return result
