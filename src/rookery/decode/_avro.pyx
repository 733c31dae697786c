# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The loop over Avro values: bytes of many rows to the buffers of Arrow columns.

Every read is checked against the end of its row before it is made, and nothing is allocated by a
number that the data states: builders grow by what was read. A row that fails is cut off again:
since every builder's length follows from its parent's, no marks have to be kept for that.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memset


cdef extern from *:
    """
    typedef __int128 rookery_wide;
    """
    ctypedef long long wide "rookery_wide"


cdef enum Op:
    NULL_VALUE
    BOOLEAN
    INT
    LONG
    FLOAT
    DOUBLE
    BYTES
    FIXED
    ENUM
    ARRAY
    RECORD
    UNION
    MEMBER
    CONSTANT
    FAIL


cdef enum Kind:
    K_NULL
    K_BOOLEAN
    K_INT32
    K_INT64
    K_FLOAT32
    K_FLOAT64
    K_BINARY
    K_TEXT
    K_FIXED
    K_DECIMAL
    K_LIST
    K_STRUCT


cdef enum Fault:
    FINE
    CUT_OFF
    BAD_VARINT
    BAD_LENGTH
    BAD_BRANCH
    BAD_SYMBOL
    BAD_BOOLEAN
    BAD_TEXT
    OUT_OF_RANGE
    TOO_MANY
    TOO_DEEP
    TOO_BIG
    UNRESOLVED
    TRAILING
    NO_MEMORY


cdef enum:
    MAX_DEPTH = 64
    SPARE_ITEMS = 256


cdef struct Builder:
    int kind
    int width
    int count
    int32_t* children
    uint8_t* valid
    Py_ssize_t length
    Py_ssize_t room
    Py_ssize_t nulls
    uint8_t* data
    Py_ssize_t size
    Py_ssize_t space
    int32_t* offsets


cdef struct Node:
    int op
    int out
    int64_t size
    int count
    int32_t* children
    int32_t* table
    int table_size
    const uint8_t* constant
    Py_ssize_t constant_size


cdef struct Run:
    const uint8_t* at
    const uint8_t* end
    Py_ssize_t budget
    Node* nodes
    Builder* builders


# ---- builders


cdef inline Py_ssize_t width_of(Builder* b) noexcept nogil:
    if b.kind == K_BOOLEAN:
        return 1
    if b.kind == K_INT32 or b.kind == K_FLOAT32:
        return 4
    if b.kind == K_INT64 or b.kind == K_FLOAT64:
        return 8
    if b.kind == K_FIXED:
        return b.width
    if b.kind == K_DECIMAL:
        return 16
    return 0


cdef inline bint has_offsets(Builder* b) noexcept nogil:
    return b.kind == K_BINARY or b.kind == K_TEXT or b.kind == K_LIST


cdef Fault grow(Builder* b) noexcept nogil:
    cdef Py_ssize_t room = 64 if b.room == 0 else b.room * 2
    cdef void* grown = realloc(b.valid, room)
    if grown == NULL:
        return NO_MEMORY
    b.valid = <uint8_t*>grown
    if has_offsets(b):
        grown = realloc(b.offsets, (room + 1) * sizeof(int32_t))
        if grown == NULL:
            return NO_MEMORY
        b.offsets = <int32_t*>grown
        if b.room == 0:
            b.offsets[0] = 0
    elif width_of(b):
        grown = realloc(b.data, room * width_of(b))
        if grown == NULL:
            return NO_MEMORY
        b.data = <uint8_t*>grown
    b.room = room
    return FINE


cdef inline Fault begin(Builder* b) noexcept nogil:
    return FINE if b.length < b.room else grow(b)


cdef inline void mark(Builder* b, bint is_valid) noexcept nogil:
    b.valid[b.length] = is_valid
    b.nulls += not is_valid
    b.length += 1


cdef Fault put_null(Run* run, Builder* b) noexcept nogil:
    cdef Fault fault = begin(b)
    cdef int i
    if fault != FINE:
        return fault
    if has_offsets(b):
        b.offsets[b.length + 1] = b.offsets[b.length]
    elif b.kind == K_STRUCT:
        for i in range(b.count):
            fault = put_null(run, run.builders + b.children[i])
            if fault != FINE:
                return fault
    elif width_of(b):
        memset(b.data + b.length * width_of(b), 0, width_of(b))
    mark(b, False)
    return FINE


cdef void cut(Run* run, Builder* b, Py_ssize_t length) noexcept nogil:
    """Take back what was appended beyond a length."""
    cdef int i
    while b.length > length:
        b.length -= 1
        b.nulls -= not b.valid[b.length]
    if b.kind == K_BINARY or b.kind == K_TEXT:
        b.size = b.offsets[length] if b.room else 0
    elif b.kind == K_LIST:
        cut(run, run.builders + b.children[0], b.offsets[length] if b.room else 0)
    elif b.kind == K_STRUCT:
        for i in range(b.count):
            cut(run, run.builders + b.children[i], length)


cdef Fault put_whole(Builder* b, int64_t value, int64_t factor) noexcept nogil:
    """Append a whole number, times a factor; a negative factor divides, towards the past."""
    cdef Fault fault = begin(b)
    if fault != FINE:
        return fault
    if factor > 1:
        if value > INT64_MAX // factor or value < INT64_MIN // factor + 1:
            return OUT_OF_RANGE
        value *= factor
    elif factor < 0:
        factor = -factor
        value = value // factor - (1 if value % factor < 0 else 0)
    if b.kind == K_INT32:
        (<int32_t*>b.data)[b.length] = <int32_t>value
    elif b.kind == K_INT64:
        (<int64_t*>b.data)[b.length] = value
    elif b.kind == K_FLOAT32:
        (<float*>b.data)[b.length] = <float>value
    else:
        (<double*>b.data)[b.length] = <double>value
    mark(b, True)
    return FINE


cdef Fault put_real(Builder* b, double value) noexcept nogil:
    cdef Fault fault = begin(b)
    if fault != FINE:
        return fault
    if b.kind == K_FLOAT32:
        (<float*>b.data)[b.length] = <float>value
    else:
        (<double*>b.data)[b.length] = value
    mark(b, True)
    return FINE


cdef bint is_text(const uint8_t* p, Py_ssize_t size) noexcept nogil:
    """Whether the bytes are UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF."""
    cdef const uint8_t* end = p + size
    cdef uint64_t word
    cdef uint8_t first
    cdef int more, low, high
    while p < end:
        if end - p >= 8:
            memcpy(&word, p, 8)
            if not (word & 0x8080808080808080ULL):
                p += 8
                continue
        first = p[0]
        p += 1
        if first < 0x80:
            continue
        low, high = 0x80, 0xBF
        if 0xC2 <= first <= 0xDF:
            more = 1
        elif 0xE0 <= first <= 0xEF:
            more = 2
            if first == 0xE0:
                low = 0xA0
            elif first == 0xED:
                high = 0x9F
        elif 0xF0 <= first <= 0xF4:
            more = 3
            if first == 0xF0:
                low = 0x90
            elif first == 0xF4:
                high = 0x8F
        else:
            return False
        if end - p < more or p[0] < low or p[0] > high:
            return False
        p += 1
        while more > 1:
            if p[0] < 0x80 or p[0] > 0xBF:
                return False
            p += 1
            more -= 1
    return True


cdef Fault put_decimal(Builder* b, const uint8_t* p, Py_ssize_t size) noexcept nogil:
    cdef wide value, limit = 1
    cdef int i
    cdef uint8_t sign = 0xFF if size and p[0] & 0x80 else 0
    while size > 16:
        if p[0] != sign:
            return OUT_OF_RANGE
        p += 1
        size -= 1
    if size and (p[0] & 0x80) != (sign & 0x80):
        return OUT_OF_RANGE
    value = -1 if sign else 0
    for i in range(size):
        value = value * 256 + p[i]
    for i in range(b.width):
        limit = limit * 10
    if value >= limit or value <= -limit:
        return OUT_OF_RANGE
    memcpy(b.data + b.length * 16, &value, 16)
    return FINE


cdef Fault put_bytes(Builder* b, const uint8_t* p, Py_ssize_t size) noexcept nogil:
    cdef Fault fault = begin(b)
    cdef Py_ssize_t space
    cdef void* grown
    if fault != FINE:
        return fault
    if b.kind == K_DECIMAL:
        fault = put_decimal(b, p, size)
        if fault != FINE:
            return fault
    elif b.kind == K_FIXED:
        memcpy(b.data + b.length * b.width, p, b.width)
    else:
        if b.kind == K_TEXT and not is_text(p, size):
            return BAD_TEXT
        if size > INT32_MAX - b.size:
            return TOO_BIG
        if b.size + size > b.space:
            space = max(b.space * 2, b.size + size + 1024)
            grown = realloc(b.data, space)
            if grown == NULL:
                return NO_MEMORY
            b.data = <uint8_t*>grown
            b.space = space
        memcpy(b.data + b.size, p, size)
        b.size += size
        b.offsets[b.length + 1] = <int32_t>b.size
    mark(b, True)
    return FINE


# ---- reading


cdef inline Fault take_long(Run* run, int64_t* value) noexcept nogil:
    cdef uint64_t whole = 0
    cdef int shift = 0
    cdef uint8_t byte
    while run.at < run.end:
        byte = run.at[0]
        run.at += 1
        whole |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            if shift == 63 and byte > 1:
                return BAD_VARINT
            value[0] = <int64_t>(whole >> 1) ^ -<int64_t>(whole & 1)
            return FINE
        shift += 7
        if shift > 63:
            return BAD_VARINT
    return CUT_OFF


cdef inline Fault take_int(Run* run, int64_t* value) noexcept nogil:
    cdef Fault fault = take_long(run, value)
    if fault == FINE and (value[0] > INT32_MAX or value[0] < INT32_MIN):
        return BAD_VARINT
    return fault


cdef Fault read(Run* run, Node* node, int depth) noexcept nogil:
    """Read one value, and append exactly one to the node's builder, if it has one."""
    cdef Builder* out = NULL if node.out < 0 else run.builders + node.out
    cdef int64_t whole = 0
    cdef float real = 0
    cdef double double_real = 0
    cdef const uint8_t* before
    cdef const uint8_t* before_end
    cdef Fault fault
    cdef int op = node.op, i
    if depth > MAX_DEPTH:
        return TOO_DEEP
    if op == LONG or op == INT:
        fault = take_int(run, &whole) if op == INT else take_long(run, &whole)
        if fault != FINE or out == NULL:
            return fault
        return put_whole(out, whole, node.size)
    if op == BYTES:
        fault = take_long(run, &whole)
        if fault != FINE:
            return fault
        if whole < 0 or whole > run.end - run.at:
            return BAD_LENGTH
        before = run.at
        run.at += whole
        return FINE if out == NULL else put_bytes(out, before, whole)
    if op == RECORD:
        for i in range(node.count):
            fault = read(run, run.nodes + node.children[i], depth + 1)
            if fault != FINE:
                return fault
        if out != NULL:
            fault = begin(out)
            if fault != FINE:
                return fault
            mark(out, True)
        return FINE
    if op == UNION:
        fault = take_long(run, &whole)
        if fault != FINE:
            return fault
        if whole < 0 or whole >= node.count:
            return BAD_BRANCH
        return read(run, run.nodes + node.children[whole], depth + 1)
    if op == NULL_VALUE:
        return FINE if out == NULL else put_null(run, out)
    if op == DOUBLE:
        if run.end - run.at < 8:
            return CUT_OFF
        memcpy(&double_real, run.at, 8)
        run.at += 8
        return FINE if out == NULL else put_real(out, double_real)
    if op == FLOAT:
        if run.end - run.at < 4:
            return CUT_OFF
        memcpy(&real, run.at, 4)
        run.at += 4
        return FINE if out == NULL else put_real(out, real)
    if op == BOOLEAN:
        return read_boolean(run, out)
    if op == ARRAY:
        return read_array(run, node, out, depth)
    if op == FIXED:
        if run.end - run.at < node.size:
            return CUT_OFF
        before = run.at
        run.at += node.size
        return FINE if out == NULL else put_bytes(out, before, node.size)
    if op == ENUM:
        fault = take_int(run, &whole)
        if fault != FINE:
            return fault
        if whole < 0 or whole >= node.table_size or node.table[whole] < 0:
            return BAD_SYMBOL
        return FINE if out == NULL else put_whole(out, node.table[whole], 1)
    if op == MEMBER:
        return read_member(run, node, out, depth)
    if op == CONSTANT:
        before, before_end = run.at, run.end
        run.at = node.constant
        run.end = node.constant + node.constant_size
        fault = read(run, run.nodes + node.children[0], depth + 1)
        run.at, run.end = before, before_end
        return fault
    return UNRESOLVED


cdef Fault read_boolean(Run* run, Builder* out) noexcept nogil:
    cdef Fault fault
    cdef uint8_t byte
    if run.at >= run.end:
        return CUT_OFF
    byte = run.at[0]
    run.at += 1
    if byte > 1:
        return BAD_BOOLEAN
    if out == NULL:
        return FINE
    fault = begin(out)
    if fault != FINE:
        return fault
    out.data[out.length] = byte
    mark(out, True)
    return FINE


cdef Fault read_array(Run* run, Node* node, Builder* out, int depth) noexcept nogil:
    cdef int64_t count = 0, size = 0, i
    cdef Fault fault
    while True:
        fault = take_long(run, &count)
        if fault != FINE:
            return fault
        if count == 0:
            break
        if count < 0:
            # A negative count is followed by the block's size in bytes, for those who skip it.
            fault = take_long(run, &size)
            if fault != FINE:
                return fault
            if count == INT64_MIN or size < 0 or size > run.end - run.at:
                return BAD_LENGTH
            count = -count
        # Items may take no bytes at all, so bytes alone do not bound them.
        if count > run.budget:
            return TOO_MANY
        run.budget -= count
        for i in range(count):
            fault = read(run, run.nodes + node.children[0], depth + 1)
            if fault != FINE:
                return fault
    if out == NULL:
        return FINE
    fault = begin(out)
    if fault != FINE:
        return fault
    size = run.builders[out.children[0]].length
    if size > INT32_MAX:
        return TOO_BIG
    out.offsets[out.length + 1] = <int32_t>size
    mark(out, True)
    return FINE


cdef Fault read_member(Run* run, Node* node, Builder* out, int depth) noexcept nogil:
    """Fill one member of a struct that stands for a union, and the others with null."""
    cdef int i
    cdef Fault fault = read(run, run.nodes + node.children[0], depth + 1)
    if fault != FINE:
        return fault
    for i in range(out.count):
        if i != node.size:
            fault = put_null(run, run.builders + out.children[i])
            if fault != FINE:
                return fault
    fault = begin(out)
    if fault != FINE:
        return fault
    mark(out, True)
    return FINE


# ---- programs


cdef int32_t* numbers(values) except? NULL:
    cdef int32_t* copied = <int32_t*>malloc((len(values) + 1) * sizeof(int32_t))
    cdef Py_ssize_t i
    if copied == NULL:
        raise MemoryError
    for i in range(len(values)):
        copied[i] = values[i]
    return copied


cdef bytes packed(const uint8_t* flags, Py_ssize_t count):
    cdef bytes bitmap = PyBytes_FromStringAndSize(NULL, (count + 7) // 8)
    cdef uint8_t* bits = <uint8_t*><char*>bitmap
    cdef Py_ssize_t i
    memset(bits, 0, (count + 7) // 8)
    for i in range(count):
        bits[i >> 3] |= (flags[i] & 1) << (i & 7)
    return bitmap


cdef class Program:
    """Nodes that read, and builders that they fill; `_avro.pyi` says what they look like."""

    cdef Node* nodes
    cdef Builder* builders
    cdef int node_count
    cdef int builder_count
    cdef list kept

    def __cinit__(self, builders, nodes):
        cdef int i
        self.kept = []
        self.nodes = <Node*>calloc(len(nodes) + 1, sizeof(Node))
        self.builders = <Builder*>calloc(len(builders) + 1, sizeof(Builder))
        if self.nodes == NULL or self.builders == NULL:
            raise MemoryError
        self.node_count = len(nodes)
        self.builder_count = len(builders)
        for i, (kind, width, children) in enumerate(builders):
            self.builders[i].kind = kind
            self.builders[i].width = width
            self.builders[i].count = len(children)
            self.builders[i].children = numbers(children)
        for i, (op, out, size, children, table, constant) in enumerate(nodes):
            self.nodes[i].op = op
            self.nodes[i].out = out
            self.nodes[i].size = size
            self.nodes[i].count = len(children)
            self.nodes[i].children = numbers(children)
            self.nodes[i].table = numbers(table)
            self.nodes[i].table_size = len(table)
            self.kept.append(constant)
            self.nodes[i].constant = <const uint8_t*><const char*><bytes>constant
            self.nodes[i].constant_size = len(constant)

    def __dealloc__(self):
        cdef int i
        if self.nodes != NULL:
            for i in range(self.node_count):
                free(self.nodes[i].children)
                free(self.nodes[i].table)
            free(self.nodes)
        if self.builders != NULL:
            self.clear()
            for i in range(self.builder_count):
                free(self.builders[i].children)
            free(self.builders)

    cdef void clear(self) noexcept:
        cdef int i
        cdef Builder* b
        for i in range(self.builder_count):
            b = self.builders + i
            free(b.valid)
            free(b.data)
            free(b.offsets)
            b.valid = b.data = NULL
            b.offsets = NULL
            b.length = b.room = b.nulls = b.size = b.space = 0

    def run(self, data, offsets, Py_ssize_t first, Py_ssize_t count, /):
        """Read rows; return what was built, and the rows that failed with the number of the fault."""
        cdef Py_buffer bytes_buffer, offsets_buffer
        faults = []
        PyObject_GetBuffer(data, &bytes_buffer, PyBUF_SIMPLE)
        try:
            PyObject_GetBuffer(offsets, &offsets_buffer, PyBUF_SIMPLE)
            try:
                if first < 0 or count < 0 or (first + count + 1) * 4 > offsets_buffer.len:
                    raise ValueError("rows outside of the offsets")
                self.read_rows(
                    <const uint8_t*>bytes_buffer.buf, bytes_buffer.len,
                    <const int32_t*>offsets_buffer.buf + first, count, faults,
                )
                return [self.built(i) for i in range(self.builder_count)], faults
            finally:
                PyBuffer_Release(&offsets_buffer)
        finally:
            PyBuffer_Release(&bytes_buffer)
            self.clear()

    cdef int read_rows(
        self, const uint8_t* data, Py_ssize_t size, const int32_t* offsets, Py_ssize_t count,
        list faults,
    ) except -1:
        cdef Run run
        cdef Py_ssize_t row
        cdef Fault fault = FINE
        run.nodes = self.nodes
        run.builders = self.builders
        for row in range(count):
            if offsets[row] < 0 or offsets[row + 1] < offsets[row] or offsets[row + 1] > size:
                raise ValueError("offsets outside of the data")
            run.at = data + offsets[row]
            run.end = data + offsets[row + 1]
            run.budget = run.end - run.at + SPARE_ITEMS
            with nogil:
                fault = read(&run, self.nodes, 0)
                if fault == FINE and run.at != run.end:
                    fault = TRAILING
                if fault != FINE and fault != NO_MEMORY:
                    cut(&run, self.builders, row)
                    if put_null(&run, self.builders) != FINE:
                        fault = NO_MEMORY
            if fault == NO_MEMORY:
                raise MemoryError
            if fault != FINE:
                faults.append((row, <int>fault))
        return 0

    cdef tuple built(self, int index):
        cdef Builder* b = self.builders + index
        cdef Py_ssize_t length = b.length
        validity = packed(b.valid, length) if b.nulls else None
        offsets = None
        data = None
        if has_offsets(b):
            if b.room:
                offsets = PyBytes_FromStringAndSize(<char*>b.offsets, (length + 1) * 4)
            else:
                offsets = bytes(4)
            if b.kind != K_LIST:
                data = PyBytes_FromStringAndSize(<char*>b.data, b.size) if b.size else b""
        elif b.kind == K_BOOLEAN:
            data = packed(b.data, length)
        elif width_of(b):
            data = PyBytes_FromStringAndSize(<char*>b.data, length * width_of(b)) if length else b""
        return length, b.nulls, validity, offsets, data
