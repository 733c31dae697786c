# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, freethreading_compatible=False
"""Relays runs of whole frames. The contract is `_window.pyi`, the oracle `windowtwin.py`.

A run is changed in place and sent by one system call. Whatever is unusual ends the run: the rest
belongs to the owner of the end, a `Connection` or an `Upstream`, which decides and complains.
"""

from asyncio import BufferedProtocol

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.memoryview cimport PyMemoryView_GET_BUFFER
from libc.math cimport INFINITY
from libc.stdint cimport int16_t, int32_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memmove

cdef extern from "<sys/socket.h>" nogil:
    ssize_t send(int socket, const void* data, size_t size, int flags)
    int MSG_DONTWAIT
    int MSG_NOSIGNAL

cdef enum:
    # Larger keys and versions have no row.
    KEYS = 128
    VERSIONS = 32
    PREFIX = 4
    REQUEST_MINIMUM = 8
    RESPONSE_MINIMUM = 4
    LAST_NUMBER = 0x7FFFFFFF
    # The entries that a window keeps while it is empty.
    FEW = 4
    # Larger frames are left to the owner, unless they have arrived as a whole.
    LARGEST = 8 * 1024 * 1024
    # Smaller incomplete frames are not counted, as in `wire.frame`.
    SMALL = 16 * 1024
    # The chunks of `wire.frame`, and the one that all ends receive into.
    CHUNK = 64 * 1024
    WIDE = 256 * 1024
    # Memory for an incomplete frame is at most this many times what has arrived.
    GROWTH = 4
    MAX_TAGS = 1024

cdef enum:
    # The steps of `skipprogram.py`: an operation, an operand, and whether null is allowed.
    FIXED = 0
    COMPACT_BYTES = 1
    SHORT_BYTES = 2
    LONG_BYTES = 3
    TAGS = 4
    COMPACT_ARRAY = 5
    LONG_ARRAY = 6
    STEP = 3

cdef enum:
    # The forms of `relayrules.AcksForm`.
    ACKS_UNREAD = 0
    ACKS_FIRST = 1
    ACKS_AFTER_SHORT = 2
    ACKS_AFTER_COMPACT = 3

cdef struct Rule:
    int32_t timeout_ms
    int32_t acks
    # The steps over a response; NULL if responses pass unread.
    int32_t* program
    Py_ssize_t size

cdef struct Entry:
    int32_t number
    # The client's, as it is on the wire.
    uint32_t client
    int16_t key
    int16_t version
    double deadline
    Rule* rule


cdef inline uint32_t get32(const uint8_t* p) noexcept nogil:
    return <uint32_t>p[0] << 24 | <uint32_t>p[1] << 16 | <uint32_t>p[2] << 8 | <uint32_t>p[3]


cdef inline int get16(const uint8_t* p) noexcept nogil:
    return <int16_t>(<uint16_t>p[0] << 8 | <uint16_t>p[1])


cdef inline void put32(uint8_t* p, uint32_t value) noexcept nogil:
    p[0] = <uint8_t>(value >> 24)
    p[1] = <uint8_t>(value >> 16)
    p[2] = <uint8_t>(value >> 8)
    p[3] = <uint8_t>value


cdef Py_ssize_t read_uvarint(
    const uint8_t* p, Py_ssize_t at, Py_ssize_t end, uint64_t* value
) noexcept nogil:
    """Read a number of at most five bytes; return the position after it, or -1."""
    cdef int shift = 0
    value[0] = 0
    while at < end and shift < 35:
        value[0] |= <uint64_t>(p[at] & 0x7F) << shift
        at += 1
        if p[at - 1] < 0x80:
            return at
        shift += 7
    return -1


cdef Py_ssize_t skip_tags(const uint8_t* p, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    cdef uint64_t count, tag, size
    at = read_uvarint(p, at, end, &count)
    if at < 0 or count > MAX_TAGS:
        return -1
    while count:
        at = read_uvarint(p, at, end, &tag)
        if at < 0:
            return -1
        at = read_uvarint(p, at, end, &size)
        if at < 0 or size > <uint64_t>(end - at):
            return -1
        at += <Py_ssize_t>size
        count -= 1
    return at


cdef Py_ssize_t read_size(
    int operation, const uint8_t* p, Py_ssize_t at, Py_ssize_t end, Py_ssize_t* size
) noexcept nogil:
    """Read a length or count, -1 for null; return the position after it, or -1."""
    cdef uint64_t value
    if operation == COMPACT_BYTES or operation == COMPACT_ARRAY:
        at = read_uvarint(p, at, end, &value)
        size[0] = <Py_ssize_t>value - 1
        return at
    if operation == SHORT_BYTES:
        if end - at < 2:
            return -1
        size[0] = get16(p + at)
        return at + 2
    if end - at < 4:
        return -1
    size[0] = <int32_t>get32(p + at)
    return at + 4


cdef Py_ssize_t skip(
    const int32_t* program,
    Py_ssize_t step,
    Py_ssize_t stop,
    const uint8_t* p,
    Py_ssize_t at,
    Py_ssize_t end,
) noexcept nogil:
    """Return the position after the fields of some steps; -1 if they are not all there."""
    cdef int operation
    cdef Py_ssize_t size, operand
    while step < stop:
        operation, operand = program[step], program[step + 1]
        if operation == FIXED:
            if end - at < operand:
                return -1
            at += operand
        elif operation == TAGS:
            at = skip_tags(p, at, end)
            if at < 0:
                return -1
        else:
            at = read_size(operation, p, at, end, &size)
            # An element takes a byte at least.
            if at < 0 or size < -1 or size > end - at or (size < 0 and not program[step + 2]):
                return -1
            if operation == COMPACT_ARRAY or operation == LONG_ARRAY:
                while size > 0:
                    at = skip(program, step + STEP, operand, p, at, end)
                    if at < 0:
                        return -1
                    size -= 1
                step = operand
                continue
            if size > 0:
                at += size
        step += STEP
    return at


cdef bint ends_bare(const Rule* rule, const uint8_t* p, Py_ssize_t size) noexcept nogil:
    """Whether a response has no tagged fields in its header and at its end."""
    cdef Py_ssize_t at
    if size < RESPONSE_MINIMUM + 1 or p[RESPONSE_MINIMUM]:
        return False
    at = skip(rule.program, 0, rule.size, p, RESPONSE_MINIMUM + 1, size)
    return at == size - 1 and not p[at]


cdef int find_acks(int form, const uint8_t* p, Py_ssize_t size, int* acks) noexcept nogil:
    """Find the acks of a Produce request; return 0 if only decoding finds them."""
    cdef Py_ssize_t at
    if size < REQUEST_MINIMUM + 2:
        return 0
    at = REQUEST_MINIMUM + 2 + max(get16(p + REQUEST_MINIMUM), 0)
    if form == ACKS_AFTER_COMPACT:
        # Tagged fields in the header, or a long transactional id: both are rare.
        if size < at + 2 or p[at] or p[at + 1] > 127:
            return 0
        at += 1 + max(<int>p[at + 1], 1)
    elif form == ACKS_AFTER_SHORT:
        if size < at + 2:
            return 0
        at += 2 + max(get16(p + at), 0)
    if size < at + 2:
        return 0
    acks[0] = get16(p + at)
    return 1


cdef class RelayRules:
    cdef Rule* rules
    cdef Py_ssize_t count
    cdef int16_t places[KEYS * VERSIONS]

    def __cinit__(self, rows):
        cdef Py_ssize_t place, i
        for place in range(KEYS * VERSIONS):
            self.places[place] = -1
        rows = [row for row in rows if 0 <= row[0] < KEYS and 0 <= row[1] < VERSIONS]
        self.rules = <Rule*>calloc(max(len(rows), 1), sizeof(Rule))
        if self.rules is NULL:
            raise MemoryError
        for place, (key, version, timeout_ms, acks, program) in enumerate(rows):
            self.rules[place].timeout_ms = timeout_ms
            self.rules[place].acks = acks
            self.count += 1
            if program is not None:
                self.rules[place].program = <int32_t*>malloc(max(len(program), 1) * sizeof(int32_t))
                if self.rules[place].program is NULL:
                    raise MemoryError
                self.rules[place].size = len(program)
                for i, word in enumerate(program):
                    self.rules[place].program[i] = word
            self.places[<int>key * VERSIONS + <int>version] = <int16_t>place

    def __dealloc__(self):
        cdef Py_ssize_t place
        if self.rules is not NULL:
            for place in range(self.count):
                free(self.rules[place].program)
            free(self.rules)

    cdef inline Rule* find(self, int key, int version) noexcept nogil:
        cdef int place
        if key < 0 or key >= KEYS or version < 0 or version >= VERSIONS:
            return NULL
        place = self.places[key * VERSIONS + version]
        return NULL if place < 0 else &self.rules[place]


cdef class RelayWindow:
    cdef RelayRules rules
    cdef Entry* entries
    cdef readonly Py_ssize_t capacity
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t taken
    cdef readonly Py_ssize_t awaited
    cdef readonly bint is_stopped
    cdef readonly double earliest
    cdef public int32_t number
    cdef public double last_seen
    cdef public bint has_part
    # A ring that grows up to the capacity.
    cdef Py_ssize_t head, allocated

    def __cinit__(self, RelayRules rules not None, Py_ssize_t capacity):
        if capacity < 1:
            raise ValueError("a window has room for one request at least")
        self.rules = rules
        self.capacity = capacity
        self.earliest = INFINITY

    def __dealloc__(self):
        free(self.entries)

    def take_requests(self, data, Py_ssize_t at, Py_ssize_t end, Py_ssize_t limit, double now):
        cdef Py_buffer view
        PyObject_GetBuffer(data, &view, PyBUF_WRITABLE)
        try:
            if not 0 <= at <= end <= view.len:
                raise ValueError("the run is not in the data")
            return self.pass_requests(<uint8_t*>view.buf, at, end, limit, now)
        finally:
            PyBuffer_Release(&view)

    def take_answers(self, data, Py_ssize_t at, Py_ssize_t end, Py_ssize_t limit):
        cdef Py_buffer view
        PyObject_GetBuffer(data, &view, PyBUF_WRITABLE)
        try:
            if not 0 <= at <= end <= view.len:
                raise ValueError("the run is not in the data")
            return self.pass_answers(<uint8_t*>view.buf, at, end, limit)
        finally:
            PyBuffer_Release(&view)

    def drain(self):
        rows = []
        cdef Entry* entry
        cdef uint8_t wire[4]
        while self.count:
            entry = &self.entries[self.head]
            rows.append(
                (
                    entry.key,
                    entry.version,
                    entry.number,
                    <int32_t>entry.client,
                    entry.deadline,
                    entry.rule.timeout_ms,
                )
            )
            self.pop()
        return rows

    cdef inline void pop(self) noexcept nogil:
        self.head += 1
        if self.head == self.allocated:
            self.head = 0
        self.count -= 1
        if not self.count and self.allocated > FEW:
            # An idle client costs little memory.
            free(self.entries)
            self.entries = NULL
            self.allocated = 0

    cdef Entry* push(self) except NULL:
        cdef Py_ssize_t place
        if self.count == self.allocated:
            self.grow()
        place = self.head + self.count
        if place >= self.allocated:
            place -= self.allocated
        self.count += 1
        return &self.entries[place]

    cdef int grow(self) except -1:
        cdef Py_ssize_t i, place, size = min(max(2 * self.allocated, FEW), self.capacity)
        cdef Entry* entries = <Entry*>malloc(size * sizeof(Entry))
        if entries is NULL:
            raise MemoryError
        for i in range(self.count):
            place = self.head + i
            entries[i] = self.entries[place - self.allocated if place >= self.allocated else place]
        free(self.entries)
        self.entries, self.allocated, self.head = entries, size, 0

    cdef Py_ssize_t pass_requests(
        self, uint8_t* data, Py_ssize_t at, Py_ssize_t end, Py_ssize_t limit, double now
    ) except -1:
        cdef Entry* entry
        cdef Rule* rule
        cdef uint8_t* p
        cdef int32_t length
        cdef int acks, key, version
        self.taken = self.awaited = 0
        self.is_stopped = False
        self.earliest = INFINITY
        while end - at >= PREFIX:
            length = <int32_t>get32(data + at)
            if length < REQUEST_MINIMUM or length > limit:
                self.is_stopped = True
                break
            if end - at - PREFIX < length:
                self.awaited = PREFIX + length
                self.is_stopped = length > LARGEST
                break
            p = data + at + PREFIX
            key, version = get16(p), get16(p + 2)
            rule = self.rules.find(key, version)
            if rule is NULL or self.count == self.capacity:
                self.is_stopped = True
                break
            acks = 1
            if rule.acks != ACKS_UNREAD and not find_acks(rule.acks, p, length, &acks):
                self.is_stopped = True
                break
            if acks:
                entry = self.push()
                entry.number = self.number
                entry.client = get32(p + 4)
                entry.key, entry.version = <int16_t>key, <int16_t>version
                entry.deadline = now + rule.timeout_ms / 1000.0
                entry.rule = rule
                self.earliest = min(self.earliest, entry.deadline)
            put32(p + 4, <uint32_t>self.number)
            self.number = 0 if self.number == LAST_NUMBER else self.number + 1
            self.taken += 1
            at += PREFIX + length
        return at

    cdef Py_ssize_t pass_answers(
        self, uint8_t* data, Py_ssize_t at, Py_ssize_t end, Py_ssize_t limit
    ) except -1:
        cdef Entry* entry
        cdef uint8_t* p
        cdef int32_t length
        self.taken = self.awaited = 0
        self.is_stopped = False
        while end - at >= PREFIX and self.count:
            length = <int32_t>get32(data + at)
            if length < RESPONSE_MINIMUM or length > limit:
                self.is_stopped = True
                break
            if end - at - PREFIX < length:
                self.awaited = PREFIX + length
                self.is_stopped = length > LARGEST
                break
            p = data + at + PREFIX
            entry = &self.entries[self.head]
            if <int32_t>get32(p) != entry.number or (
                entry.rule.program is not NULL and not ends_bare(entry.rule, p, length)
            ):
                self.is_stopped = True
                break
            put32(p, entry.client)
            self.pop()
            self.taken += 1
            at += PREFIX + length
        if not self.count and at < end:
            # Nothing was asked that could be answered.
            self.is_stopped = True
        return at


# The chunk that ends receive into; None while one of them uses it. An end keeps it during a call
# of the event loop only: what is incomplete then moves to memory of the end's own.
cdef object spare = None


cdef class RelayEnd:
    """The receiving side of both ends: a chunk, and the socket that runs are sent to."""

    cdef RelayWindow window
    cdef object owner, receiver, splitter, chunks, chunk, target, now
    # What the chunk is a view of, if it was made for a large frame.
    cdef object memory
    # The memory of the chunk, which lives as long as its view.
    cdef uint8_t* data
    cdef Py_ssize_t size, start, end
    # Bytes of an incomplete frame that are counted.
    cdef Py_ssize_t counted
    cdef bint is_handed, is_wide
    cdef int socket

    def __cinit__(self, RelayWindow window not None, owner, splitter, *rest):
        self.window = window
        self.owner = owner
        self.splitter = splitter
        self.chunks = splitter.chunks
        self.socket = -1
        # The splitter may hold bytes that arrived before.
        self.is_handed = True

    def aim(self, target, int socket):
        """Send runs to a socket; -1 hands all that arrives to the owner."""
        self.target = target
        self.socket = socket

    def get_buffer(self, hint):
        if self.is_handed:
            if self.splitter.pending:
                return self.owner.get_buffer(hint)
            self.is_handed = False
        if self.chunk is None:
            self.take_chunk()
        return self.chunk[self.end:] if self.end else self.chunk

    def eof_received(self):
        return self.owner.eof_received()

    def pause_writing(self):
        self.owner.pause_writing()

    def resume_writing(self):
        self.owner.resume_writing()

    def connection_lost(self, error):
        self.give_chunk()
        self.is_handed = True
        self.aim(None, -1)
        self.owner.connection_lost(error)

    cdef int take_chunk(self) except -1:
        global spare
        chunk, spare = spare, None
        self.use(memoryview(bytearray(WIDE)) if chunk is None else chunk, None)
        self.is_wide = True

    cdef int give_chunk(self) except -1:
        global spare
        self.uncount()
        chunk, self.chunk = self.chunk, None
        memory, self.memory = self.memory, None
        self.start = self.end = 0
        if self.is_wide:
            spare = chunk
            self.is_wide = False
        elif memory is not None:
            self.chunks.give_large(memory)
        elif chunk is not None:
            self.chunks.give(chunk)

    cdef int use(self, chunk, memory) except -1:
        self.chunk, self.memory = chunk, memory
        cdef Py_buffer* view = PyMemoryView_GET_BUFFER(chunk)
        self.data, self.size = <uint8_t*>view.buf, view.len

    cdef int move(self, chunk, memory) except -1:
        """Move what is incomplete to another chunk."""
        cdef Py_ssize_t count = self.end - self.start, counted = self.counted
        cdef uint8_t* place = <uint8_t*>PyMemoryView_GET_BUFFER(chunk).buf
        memcpy(place, self.data + self.start, count)
        self.counted = 0
        self.give_chunk()
        self.use(chunk, memory)
        self.end, self.counted = count, counted

    cdef int keep(self) except -1:
        """Let an incomplete frame have memory of its own, in which there is room for its rest."""
        cdef Py_ssize_t count = self.end - self.start
        cdef Py_ssize_t wanted = max(self.window.awaited, <Py_ssize_t>(SMALL + PREFIX))
        if wanted <= CHUNK:
            if self.is_wide or self.memory is not None:
                self.move(self.chunks.take(), None)
        elif self.memory is None or (self.end == self.size and self.size < wanted):
            memory = self.chunks.make_large(wanted, max(GROWTH * count, <Py_ssize_t>CHUNK))
            self.move(memoryview(memory), memory)
        if self.start and self.size - self.start < wanted:
            memmove(self.data, self.data + self.start, count)
            self.start, self.end = 0, count

    cdef bint count(self):
        """Count an incomplete frame that is large; return whether there is room for it."""
        return True

    cdef int uncount(self) except -1:
        """Undo `count`."""

    cdef int hand_over(self) except -1:
        """Let the owner continue with what was not relayed."""
        if self.is_wide and self.end - self.start <= CHUNK:
            self.move(self.chunks.take(), None)
        self.uncount()
        start, end = self.start, self.end
        self.is_handed = True
        self.is_wide = self.window.has_part = False
        chunk, self.chunk = self.chunk, None
        self.memory = None
        self.start = self.end = 0
        self.receiver.receive(chunk, start, end)

    cdef int finish(self, Py_ssize_t at, bint is_stopped) except -1:
        """Keep an incomplete frame, and nothing while there is none."""
        self.start = at
        if at == self.end:
            self.give_chunk()
        elif is_stopped or not (self.window.awaited <= SMALL + PREFIX or self.count()):
            self.hand_over()
        else:
            self.keep()

    cdef Py_ssize_t send_run(self, Py_ssize_t at) except -1:
        """Send as much of the run as the socket takes; return how much that is."""
        if self.target.get_write_buffer_size():
            return 0
        # Any error shows again when the transport sends the rest.
        cdef ssize_t sent = send(
            self.socket,
            self.data + self.start,
            at - self.start,
            MSG_DONTWAIT | MSG_NOSIGNAL,
        )
        return max(sent, 0)

    cdef object get_rest(self, Py_ssize_t sent, Py_ssize_t at):
        """Return what was not sent, without a copy if nothing else is received to its memory."""
        if self.memory is not None and at == self.end:
            return self.chunk[self.start + sent : at]
        return PyBytes_FromStringAndSize(
            <char*>self.data + self.start + sent, at - self.start - sent
        )


cdef class _RequestEnd(RelayEnd):
    cdef object state, queue, requests, upstream, calls

    def __init__(self, window, owner, splitter, flow, upstream, now):
        self.receiver = flow
        self.queue = flow.queue
        self.requests = flow.queue.requests
        self.state = flow.state
        self.upstream = upstream
        self.calls = upstream.calls
        self.now = now

    def buffer_updated(self, Py_ssize_t count):
        if self.is_handed:
            self.owner.buffer_updated(count)
            return
        cdef RelayWindow window = self.window
        cdef Py_ssize_t at, sent
        cdef double now = self.now()
        cdef bint was_empty = self.start == self.end
        self.end += count
        self.owner.bytes_in += count
        if not self.is_open():
            self.hand_over()
            return
        window.number = self.calls.next_number
        at = window.pass_requests(
            self.data, self.start, self.end, self.splitter.limit, now
        )
        if was_empty or window.taken:
            window.last_seen = now
        window.has_part = at < self.end
        cdef bint is_stopped = window.is_stopped
        rest = None
        if window.taken:
            self.uncount()
            self.calls.next_number = window.number
            self.queue.started += window.taken
            self.upstream.requests += window.taken
            sent = self.send_run(at)
            if sent < at - self.start:
                rest = self.get_rest(sent, at)
            if window.earliest < <double>self.upstream.timer_at:
                self.upstream.arm(window.earliest)
            if rest is not None:
                self.target.write(rest)
        self.finish(at, is_stopped)

    cdef bint is_open(self):
        """Whether requests may be relayed at once, before no other."""
        return (
            <bint>self.state.can_read
            and self.socket >= 0
            and not self.target.is_closing()
            and <bint>self.upstream.is_writable
            and not self.calls.is_held
            and (self.window.count or not (self.requests or self.calls.sent or self.calls.unsent))
        )

    cdef bint count(self):
        cdef Py_ssize_t arrived = self.end - self.start, more = arrived - self.counted
        self.counted = arrived
        return self.queue.count_part(more, arrived)

    cdef int uncount(self) except -1:
        if self.counted:
            self.queue.release_part(self.counted)
            self.counted = 0


cdef class _AnswerEnd(RelayEnd):
    cdef object queue, outbox

    def __init__(self, window, owner, splitter, queue, now):
        self.receiver = owner
        self.queue = queue
        self.outbox = queue.outbox
        self.now = now

    def buffer_updated(self, Py_ssize_t count):
        if self.is_handed:
            self.owner.buffer_updated(count)
            return
        cdef RelayWindow window = self.window
        cdef Py_ssize_t at, sent
        self.end += count
        if not (
            window.count
            and <bint>self.owner.can_take
            and <bint>self.outbox.is_writable
            and self.socket >= 0
            and not self.target.is_closing()
        ):
            self.hand_over()
            return
        at = window.pass_answers(
            self.data, self.start, self.end, self.splitter.limit
        )
        cdef bint is_stopped = window.is_stopped
        if window.taken:
            self.uncount()
            window.last_seen = self.now()
            sent = self.send_run(at)
            self.outbox.written += sent
            rest = self.get_rest(sent, at) if sent < at - self.start else None
            self.start = at
            if rest is not None:
                self.queue.write(rest)
        self.finish(at, is_stopped)

    cdef bint count(self):
        if not self.counted:
            if not self.queue.reserve(self.window.awaited):
                return False
            self.counted = self.window.awaited
        return True

    cdef int uncount(self) except -1:
        if self.counted:
            self.queue.release(self.counted)
            self.counted = 0


# An event loop may ask for the class of a protocol.
class RequestEnd(_RequestEnd, BufferedProtocol):
    __slots__ = ()


class AnswerEnd(_AnswerEnd, BufferedProtocol):
    __slots__ = ()
