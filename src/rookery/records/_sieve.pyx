# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, freethreading_compatible=False
"""The loops of compaction. The contract is `_sieve.pyi`, the oracle `twins/sievetwin.py`.

Keys are identified by SipHash-2-4 with 128 bits and a secret seed, so colliding keys cannot be
constructed. A slot is 24 bytes: the digest, and the offset plus one, so that zeros mean empty.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from rookery.records._batch cimport (
    BAD_FIELD, BAD_LENGTH, BAD_OFFSET, BAD_TIMESTAMP, BAD_VARINT, FINE, MIN_RECORD, TRAILING,
    Batch, Fault, fault_text, get_field, get_varint, get_varlong, set_varlong, to_batch,
)

from rookery.errors import Corrupt

cdef extern from *:
    """
    #if defined(__GNUC__)
    #define rookery_prefetch(address) __builtin_prefetch(address)
    #else
    #define rookery_prefetch(address) ((void)(address))
    #endif
    """
    void rookery_prefetch(const void* address) noexcept nogil

cdef enum:
    # The number of records that are read before the first of them is looked up. A map is larger
    # than the processor's caches, so the slots are prefetched from memory in parallel.
    GROUP = 16

cdef enum:
    # The number of bytes by which a timestamp delta and a length may each grow.
    GROWTH = 16

SLOT_BYTES = 27  # 24 bytes, and one slot in ten stays empty


cdef struct Slot:
    uint64_t low
    uint64_t high
    int64_t offset


cdef struct Span:
    Py_ssize_t begin
    Py_ssize_t end
    Py_ssize_t time_at
    Py_ssize_t offset_at
    int64_t time_delta
    int64_t offset
    int64_t timestamp
    Py_ssize_t key_at
    int32_t key_size
    int32_t value_size


cdef struct Sought:
    # A record, the digest of its key, and the slot of the digest.
    Span span
    Slot wanted
    uint64_t place


cdef struct Result:
    Py_ssize_t index
    int32_t kept
    int32_t tombstones
    int64_t highest
    Py_ssize_t size


cdef struct Walk:
    # The read position in a batch.
    Py_ssize_t at
    Py_ssize_t index
    int64_t last
    int held


# ---- records


cdef Fault get_frame(
    const uint8_t* p, Py_ssize_t size, Py_ssize_t at, Span* span
) noexcept nogil:
    """Find the end of a record, and its timestamp delta."""
    cdef int32_t length
    span.begin = at
    if get_varint(p, size, &at, &length) != FINE:
        return BAD_VARINT
    if length < 1 or length > size - at:
        return BAD_LENGTH
    span.end = at + length
    at += 1
    span.time_at = at
    if get_varlong(p, span.end, &at, &span.time_delta) != FINE:
        return BAD_VARINT
    span.offset_at = at
    return FINE


cdef Fault get_span(
    const uint8_t* p, Py_ssize_t size, Py_ssize_t at, Batch* batch, int64_t last, Span* span
) noexcept nogil:
    """Find the fields of a record that compaction reads; headers are not read."""
    cdef int32_t delta
    cdef Fault fault = get_frame(p, size, at, span)
    if fault != FINE:
        return fault
    at = span.offset_at
    if get_varint(p, span.end, &at, &delta) != FINE:
        return BAD_VARINT
    if delta < 0 or delta > batch.last_offset_delta or batch.base_offset + delta <= last:
        return BAD_OFFSET
    span.offset = batch.base_offset + delta
    fault = get_field(p, span.end, &at, &span.key_size, BAD_FIELD)
    if fault != FINE:
        return fault
    span.key_at = at
    if span.key_size > 0:
        at += span.key_size
    fault = get_field(p, span.end, &at, &span.value_size, BAD_FIELD)
    if fault != FINE:
        return fault
    return get_time(batch, span)


cdef inline Fault get_time(Batch* batch, Span* span) noexcept nogil:
    cdef int64_t base = batch.base_timestamp, delta = span.time_delta
    if batch.has_append_time:
        span.timestamp = batch.append_time
        return FINE
    if (delta > 0 and base > INT64_MAX - delta) or (delta < 0 and base < INT64_MIN - delta):
        return BAD_TIMESTAMP
    span.timestamp = base + delta
    return FINE


cdef object broken(Py_ssize_t index, Fault fault):
    return Corrupt(f"record {index}: {fault_text(fault)}")


# ---- digests


cdef inline uint64_t rotate(uint64_t value, int by) noexcept nogil:
    return (value << by) | (value >> (64 - by))


cdef inline void stir(uint64_t* v, int rounds) noexcept nogil:
    cdef int i
    for i in range(rounds):
        v[0] += v[1]
        v[2] += v[3]
        v[1] = rotate(v[1], 13) ^ v[0]
        v[3] = rotate(v[3], 16) ^ v[2]
        v[0] = rotate(v[0], 32)
        v[2] += v[1]
        v[0] += v[3]
        v[1] = rotate(v[1], 17) ^ v[2]
        v[3] = rotate(v[3], 21) ^ v[0]
        v[2] = rotate(v[2], 32)


cdef void digest(
    const uint8_t* p, Py_ssize_t size, const uint64_t* seed, Slot* slot
) noexcept nogil:
    """SipHash-2-4 with 128 bits."""
    cdef uint64_t v[4]
    cdef uint64_t word
    cdef Py_ssize_t at = 0, tail
    v[0] = seed[0] ^ 0x736F6D6570736575ULL
    v[1] = seed[1] ^ 0x646F72616E646F6DULL ^ 0xEE
    v[2] = seed[0] ^ 0x6C7967656E657261ULL
    v[3] = seed[1] ^ 0x7465646279746573ULL
    while size - at >= 8:
        memcpy(&word, p + at, 8)
        v[3] ^= word
        stir(v, 2)
        v[0] ^= word
        at += 8
    word = <uint64_t>(size & 0xFF) << 56
    for tail in range(size - at):
        word |= <uint64_t>p[at + tail] << (8 * tail)
    v[3] ^= word
    stir(v, 2)
    v[0] ^= word
    v[2] ^= 0xEE
    stir(v, 4)
    slot.low = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    stir(v, 4)
    slot.high = v[0] ^ v[1] ^ v[2] ^ v[3]


# ---- the map


cdef class OffsetMap:
    """The last offset of every key, identified by a keyed 16-byte digest."""

    cdef Slot* slots
    cdef uint64_t slot_count
    cdef readonly Py_ssize_t capacity
    cdef Py_ssize_t used
    cdef uint64_t seed[2]

    def __cinit__(self, Py_ssize_t max_bytes, bytes seed):
        if len(seed) != 16:
            raise ValueError("a seed has 16 bytes")
        self.slot_count = max(max_bytes, 2 * sizeof(Slot)) // sizeof(Slot)
        self.capacity = <Py_ssize_t>(self.slot_count - self.slot_count // 10 - 1)
        memcpy(self.seed, PyBytes_AS_STRING(seed), 16)
        # Pages without keys are never touched, and cost nothing.
        self.slots = <Slot*>calloc(self.slot_count, sizeof(Slot))
        if self.slots == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.slots)

    def __len__(self):
        return self.used

    cdef void seek(self, const uint8_t* p, Sought* record) noexcept nogil:
        """Prefetch the slot of a record's key; records without a key have none."""
        if record.span.key_size >= 0:
            digest(p + record.span.key_at, record.span.key_size, self.seed, &record.wanted)
            record.place = record.wanted.low % self.slot_count
            rookery_prefetch(self.slots + record.place)

    cdef Slot* find(self, Sought* record) noexcept nogil:
        """Find the slot of a key, or the empty slot where it belongs."""
        cdef uint64_t at = record.place
        cdef Slot* slot
        while True:
            slot = self.slots + at
            if slot.offset == 0 or (
                slot.low == record.wanted.low and slot.high == record.wanted.high
            ):
                return slot
            at += 1
            if at == self.slot_count:
                at = 0

    cdef Fault next_group(
        self, const uint8_t* p, Py_ssize_t size, Batch* batch, Walk* walk, Sought* some
    ) noexcept nogil:
        """Read the next records and prefetch their slots; the walk contains their number."""
        cdef Fault fault
        walk.held = 0
        while walk.held < GROUP and walk.index < batch.count:
            fault = get_span(p, size, walk.at, batch, walk.last, &some[walk.held].span)
            if fault != FINE:
                return fault
            walk.at = some[walk.held].span.end
            walk.last = some[walk.held].span.offset
            self.seek(p, &some[walk.held])
            walk.held += 1
            walk.index += 1
        return FINE

    def note(self, data, header, /):
        """Add the keys of a batch's records; return False and add none if not all fit."""
        cdef Batch batch
        cdef Py_buffer buffer
        cdef Py_ssize_t index = 0
        cdef Fault fault
        to_batch(header, &batch)
        if batch.count > self.capacity - self.used:
            return False
        PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
        try:
            with nogil:
                fault = check_all(<const uint8_t*>buffer.buf, buffer.len, &batch, &index)
                # In two passes, so that no key is added of a batch that cannot be read.
                if fault == FINE:
                    self.take_all(<const uint8_t*>buffer.buf, buffer.len, &batch)
        finally:
            PyBuffer_Release(&buffer)
        if fault != FINE:
            raise broken(index, fault)
        return True

    cdef void take_all(self, const uint8_t* p, Py_ssize_t size, Batch* batch) noexcept nogil:
        cdef Sought some[GROUP]
        cdef Walk walk = begun(batch)
        cdef int i
        while walk.index < batch.count:
            if self.next_group(p, size, batch, &walk, some) != FINE:
                return
            for i in range(walk.held):
                if some[i].span.key_size >= 0:
                    self.take(&some[i])

    cdef void take(self, Sought* record) noexcept nogil:
        cdef Slot* slot = self.find(record)
        if slot.offset == 0:
            slot.low = record.wanted.low
            slot.high = record.wanted.high
            self.used += 1
        if slot.offset <= record.span.offset:
            slot.offset = record.span.offset + 1

    def sift(self, data, header, bint drops_tombstones, /):
        """Remove records whose key has a later offset, and tombstones if allowed."""
        cdef Batch batch
        cdef Py_buffer buffer
        cdef Result result
        cdef Fault fault
        cdef uint8_t* out
        to_batch(header, &batch)
        PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
        out = <uint8_t*>malloc(buffer.len + 1)
        try:
            if out == NULL:
                raise MemoryError
            with nogil:
                fault = self.sift_all(
                    <const uint8_t*>buffer.buf, buffer.len, &batch, drops_tombstones, out, &result
                )
            if fault != FINE:
                raise broken(result.index, fault)
            kept = None
            if result.kept < batch.count:
                kept = PyBytes_FromStringAndSize(<char*>out, result.size)
            return result.kept, result.tombstones, result.highest, kept
        finally:
            free(out)
            PyBuffer_Release(&buffer)

    cdef Fault sift_all(
        self, const uint8_t* p, Py_ssize_t size, Batch* batch, bint drops_tombstones,
        uint8_t* out, Result* result,
    ) noexcept nogil:
        cdef Sought some[GROUP]
        cdef Walk walk = begun(batch)
        cdef Span* span
        cdef Py_ssize_t run = 0
        cdef Fault fault
        cdef int i
        result.kept = result.tombstones = 0
        result.size = result.index = 0
        result.highest = -1
        while walk.index < batch.count:
            fault = self.next_group(p, size, batch, &walk, some)
            result.index = walk.index
            if fault != FINE:
                return fault
            for i in range(walk.held):
                span = &some[i].span
                if self.stays(&some[i], drops_tombstones):
                    count_kept(span, result)
                    continue
                memcpy(out + result.size, p + run, span.begin - run)
                result.size += span.begin - run
                run = span.end
        if walk.at != size:
            result.index = max(batch.count - 1, 0)
            return TRAILING
        memcpy(out + result.size, p + run, size - run)
        result.size += size - run
        return FINE

    cdef bint stays(self, Sought* record, bint drops_tombstones) noexcept nogil:
        if record.span.key_size < 0:
            return True
        if drops_tombstones and record.span.value_size < 0:
            return False
        return self.find(record).offset - 1 <= record.span.offset


cdef inline Walk begun(Batch* batch) noexcept nogil:
    cdef Walk walk
    walk.at = walk.index = 0
    walk.last = batch.base_offset - 1
    walk.held = 0
    return walk


cdef inline void count_kept(Span* span, Result* result) noexcept nogil:
    result.kept += 1
    if span.key_size >= 0 and span.value_size < 0:
        result.tombstones += 1
    if span.timestamp > result.highest:
        result.highest = span.timestamp


cdef Fault check_all(
    const uint8_t* p, Py_ssize_t size, Batch* batch, Py_ssize_t* index
) noexcept nogil:
    """Check that all records of a batch can be read; report the first that cannot."""
    cdef Span span
    cdef Walk walk = begun(batch)
    cdef Fault fault
    for index[0] in range(batch.count):
        fault = get_span(p, size, walk.at, batch, walk.last, &span)
        if fault != FINE:
            return fault
        walk.at = span.end
        walk.last = span.offset
    return FINE if walk.at == size else TRAILING


# ---- other times


def rebase(data, Py_ssize_t count, int64_t shift, /):
    """Rewrite records with `shift` added to their timestamp deltas."""
    cdef Py_buffer buffer
    cdef Py_ssize_t index = 0, size = 0
    cdef Fault fault
    cdef uint8_t* out
    PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
    out = NULL
    try:
        if count < 0 or count > buffer.len // MIN_RECORD:
            raise Corrupt(f"{count} records do not fit into {buffer.len} bytes")
        out = <uint8_t*>malloc(buffer.len + count * GROWTH + 1)
        if out == NULL:
            raise MemoryError
        with nogil:
            fault = rebase_all(
                <const uint8_t*>buffer.buf, buffer.len, count, shift, out, &index, &size
            )
        if fault != FINE:
            raise broken(index, fault)
        return PyBytes_FromStringAndSize(<char*>out, size)
    finally:
        free(out)
        PyBuffer_Release(&buffer)


cdef Fault rebase_all(
    const uint8_t* p, Py_ssize_t size, Py_ssize_t count, int64_t shift, uint8_t* out,
    Py_ssize_t* index, Py_ssize_t* written,
) noexcept nogil:
    cdef Span span
    cdef Py_ssize_t at = 0, to = 0, time_size, rest
    cdef uint8_t time[10]
    cdef int64_t delta
    cdef Fault fault
    for index[0] in range(count):
        fault = get_frame(p, size, at, &span)
        if fault != FINE:
            return fault
        at = span.end
        delta = span.time_delta
        if (shift > 0 and delta > INT64_MAX - shift) or (shift < 0 and delta < INT64_MIN - shift):
            return BAD_TIMESTAMP
        time_size = set_varlong(time, delta + shift)
        rest = span.end - span.offset_at
        to += set_varlong(out + to, 1 + time_size + rest)
        out[to] = p[span.time_at - 1]
        memcpy(out + to + 1, time, time_size)
        memcpy(out + to + 1 + time_size, p + span.offset_at, rest)
        to += 1 + time_size + rest
    written[0] = to
    return FINE if at == size else TRAILING
