# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The codec, compiled: one interpreter that reads and writes any table of `wire.table`.

It builds messages by storing into their slots at fixed offsets, and reads bytes without making
objects on the way. `_twin.py` does the same in Python, and is the place to read what it does; the
two must give the same values, the same bytes and the same errors.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM, PyList_New
from cpython.long cimport PyLong_FromLong, PyLong_FromLongLong
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.object cimport PyObject, Py_EQ, PyObject_RichCompareBool
from cpython.ref cimport Py_INCREF
from libc.stdint cimport INT64_MIN, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memmove

from rookery.errors import ErrorCode, ProtocolError
from rookery.wire.message import Message, Parts, Type
from rookery.wire.table import MAX_TAGS as _MAX_TAGS
from rookery.wire.table import NO_LIMIT as _NO_LIMIT
from rookery.wire.table import PART_BYTES as _PART_BYTES

cdef extern from "Python.h":
    ctypedef struct PyTypeObject:
        pass
    ctypedef struct PyMemberDef:
        Py_ssize_t offset
    ctypedef struct PyMemberDescrObject:
        PyMemberDef *d_member
    PyTypeObject PyMemberDescr_Type
    PyTypeObject *Py_TYPE(object value)
    object PyType_GenericAlloc(PyTypeObject *cls, Py_ssize_t size)
    object PyUnicode_DecodeUTF8(const char *data, Py_ssize_t size, const char *errors)
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL
    long long PyLong_AsLongLongAndOverflow(object value, int *overflow) except? -1
    void PyObject_GC_UnTrack(PyObject *value)
    double PyFloat_AsDouble(object value) except? -1.0

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    #if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    #define rk_16(x) (x)
    #define rk_32(x) (x)
    #define rk_64(x) (x)
    #else
    static inline uint16_t rk_16(uint16_t x) { return (uint16_t)((x << 8) | (x >> 8)); }
    static inline uint32_t rk_32(uint32_t x) {
        return (x >> 24) | ((x >> 8) & 0xff00u) | ((x << 8) & 0xff0000u) | (x << 24);
    }
    static inline uint64_t rk_64(uint64_t x) {
        return ((uint64_t)rk_32((uint32_t)x) << 32) | rk_32((uint32_t)(x >> 32));
    }
    #endif
    static inline uint16_t rk_get16(const uint8_t *p) { uint16_t v; memcpy(&v, p, 2); return rk_16(v); }
    static inline uint32_t rk_get32(const uint8_t *p) { uint32_t v; memcpy(&v, p, 4); return rk_32(v); }
    static inline uint64_t rk_get64(const uint8_t *p) { uint64_t v; memcpy(&v, p, 8); return rk_64(v); }
    static inline void rk_put16(uint8_t *p, uint16_t v) { v = rk_16(v); memcpy(p, &v, 2); }
    static inline void rk_put32(uint8_t *p, uint32_t v) { v = rk_32(v); memcpy(p, &v, 4); }
    static inline void rk_put64(uint8_t *p, uint64_t v) { v = rk_64(v); memcpy(p, &v, 8); }
    """
    uint16_t rk_get16(const uint8_t *p) noexcept nogil
    uint32_t rk_get32(const uint8_t *p) noexcept nogil
    uint64_t rk_get64(const uint8_t *p) noexcept nogil
    void rk_put16(uint8_t *p, uint16_t v) noexcept nogil
    void rk_put32(uint8_t *p, uint32_t v) noexcept nogil
    void rk_put64(uint8_t *p, uint64_t v) noexcept nogil

# The numbers of `wire.message.Type`, as C constants for the switches below.
cdef enum:
    BOOL = 0
    I8 = 1
    I16 = 2
    I32 = 3
    I64 = 4
    U16 = 5
    U32 = 6
    F64 = 7
    UUID = 8
    ERROR = 9
    STRING = 10
    BYTES = 11
    RECORDS = 12
    STRUCT = 13
    ARRAY = 14

cdef Py_ssize_t MAX_TAGS = _MAX_TAGS
cdef Py_ssize_t NO_LIMIT = _NO_LIMIT
cdef Py_ssize_t PART_BYTES = _PART_BYTES
cdef object _Parts = Parts
cdef object _list = list

cdef Py_ssize_t SIZES[10]
SIZES[:] = [1, 1, 2, 4, 8, 2, 4, 8, 16, 2]
cdef int64_t LOWS[7]
LOWS[:] = [0, -(2**7), -(2**15), -(2**31), INT64_MIN, 0, 0]
cdef int64_t HIGHS[7]
HIGHS[:] = [1, 2**7 - 1, 2**15 - 1, 2**31 - 1, 2**63 - 1, 2**16 - 1, 2**32 - 1]

# Members for the codes that are in use; others go through the enum's own look-up.
cdef enum:
    CODES = 256
cdef PyObject *CODE_MEMBERS[CODES]
cdef list _code_members = [ErrorCode(i - 1) if i - 1 in ErrorCode._value2member_map_ else None for i in range(CODES)]
cdef int _i
for _i in range(CODES):
    CODE_MEMBERS[_i] = <PyObject *> PyList_GET_ITEM(_code_members, _i)


cdef struct Op:
    int type
    int element
    bint nullable
    bint compact
    bint makes_list
    Py_ssize_t offset
    Py_ssize_t min_element
    Py_ssize_t tag
    # All borrowed: the program keeps what they point at.
    PyObject *default
    PyObject *factory
    PyObject *program
    PyObject *name


@cython.final
cdef class Program:
    """A table in the form that the interpreter runs."""

    cdef Op *ops
    cdef Op *steps
    cdef Op *tagged
    cdef Op *absent
    cdef Py_ssize_t n_steps
    cdef Py_ssize_t n_tagged
    cdef Py_ssize_t n_absent
    cdef PyTypeObject *cls
    cdef Py_ssize_t unknown_offset
    cdef bint flexible
    cdef Py_ssize_t min_size
    cdef readonly object message
    cdef list keep

    def __cinit__(self, table):
        cdef Py_ssize_t count = len(table.steps) + len(table.tagged) + len(table.absent)
        self.ops = <Op *> PyMem_Malloc((count + 1) * sizeof(Op))
        if self.ops == NULL:
            raise MemoryError()
        self.keep = []
        self.message = table.message
        self.cls = <PyTypeObject *> <PyObject *> table.message
        self.flexible = table.flexible
        self.min_size = table.min_size
        self.unknown_offset = slot_offset(Message, "unknown_tags")
        self.steps = self.ops
        self.n_steps = self.fill(self.steps, table.steps)
        self.tagged = self.steps + self.n_steps
        self.n_tagged = self.fill(self.tagged, list(table.tagged.values()))
        self.absent = self.tagged + self.n_tagged
        self.n_absent = self.fill(self.absent, table.absent)

    def __dealloc__(self):
        PyMem_Free(self.ops)

    cdef Py_ssize_t fill(self, Op *ops, list steps) except -1:
        cdef Op *op
        cdef Py_ssize_t i
        for i, step in enumerate(steps):
            op = ops + i
            op.type = step.type
            op.element = -1 if step.element is None else step.element
            op.nullable = step.nullable
            op.compact = step.compact
            op.tag = step.tag
            op.offset = slot_offset(self.message, step.name)
            op.makes_list = step.factory is _list
            op.default = self.hold(step.default)
            op.factory = NULL if step.factory is None else self.hold(step.factory)
            op.name = self.hold(step.name)
            op.program = NULL
            op.min_element = 1
            if step.table is not None:
                op.program = self.hold(program_of(step.table))
                op.min_element = max(1, step.table.min_size)
            elif op.type == ARRAY:
                op.min_element = SIZES[op.element] if op.element <= ERROR else (1 if op.compact else 2)
        return len(steps)

    cdef PyObject *hold(self, value):
        self.keep.append(value)
        return <PyObject *> value


cdef Py_ssize_t slot_offset(cls, str name) except -1:
    """The position of a slot in an object, from its descriptor."""
    descriptor = cls.__dict__[name]
    if Py_TYPE(descriptor) != &PyMemberDescr_Type:
        raise TypeError(f"{cls.__name__}.{name} is not a slot")
    return (<PyMemberDescrObject *> <PyObject *> descriptor).d_member.offset


cdef Program program_of(table):
    program = table.program
    if program is None:
        program = Program(table)
        table.program = program
    return <Program> program


cdef inline void store(PyObject *message, Py_ssize_t offset, object value) noexcept:
    """Fill a slot that is still empty."""
    Py_INCREF(value)
    (<PyObject **> ((<char *> message) + offset))[0] = <PyObject *> value


cdef inline void replace(PyObject *message, Py_ssize_t offset, object value):
    """Fill a slot that may hold something already."""
    cdef PyObject **slot = <PyObject **> ((<char *> message) + offset)
    cdef PyObject *old = slot[0]
    Py_INCREF(value)
    slot[0] = <PyObject *> value
    if old != NULL:
        release(old)


cdef extern from "Python.h":
    void release "Py_DECREF" (PyObject *value)


# ---------------------------------------------------------------------------------------- reading


@cython.final
cdef class Cursor:
    """Where we are in a frame, and in which field."""

    cdef const uint8_t *start
    cdef const uint8_t *at
    cdef const uint8_t *end
    # How many array elements may still be read: bytes cost less than what is made of them.
    cdef Py_ssize_t elements
    cdef object view
    cdef object buffer
    cdef PyObject *program
    cdef Op *op

    cdef str place(self):
        if self.program == NULL:
            return ""
        cls = (<Program> self.program).message.__name__
        return f"{cls}: " if self.op == NULL else f"{cls}.{<object> self.op.name}: "


def read(table, buffer, Py_ssize_t position, Py_ssize_t max_elements=NO_LIMIT):
    """Read one message that begins at `position`; return it and where it ends."""
    cdef Program program = program_of(table)
    cdef Cursor cursor = Cursor.__new__(Cursor)
    cdef Py_buffer raw
    PyObject_GetBuffer(buffer, &raw, PyBUF_SIMPLE)
    try:
        if position < 0 or position > raw.len:
            raise ProtocolError(f"position {position} in a frame of {raw.len} bytes")
        cursor.start = <const uint8_t *> raw.buf
        cursor.at = cursor.start + position
        cursor.end = cursor.start + raw.len
        cursor.buffer = buffer
        cursor.elements = max_elements
        cursor.program = NULL
        cursor.op = NULL
        message = read_struct(program, cursor)
        return message, cursor.at - cursor.start
    except ProtocolError as error:
        raise ProtocolError(f"{cursor.place()}{error}") from None
    finally:
        PyBuffer_Release(&raw)


cdef object read_struct(Program program, Cursor cursor):
    message = PyType_GenericAlloc(program.cls, 0)
    cdef PyObject *pointer = <PyObject *> message
    cdef Op *op = program.steps
    cdef Op *last = op + program.n_steps
    # A message read from bytes is a tree: nothing in it for the cycle collector, whose walks would
    # otherwise take more time than the reading.
    PyObject_GC_UnTrack(pointer)
    store(pointer, program.unknown_offset, None)
    while op < last:
        cursor.program = <PyObject *> program
        cursor.op = op
        store(pointer, op.offset, read_value(op, op.type, op.nullable, cursor))
        op += 1
    last = program.absent + program.n_absent
    op = program.absent
    while op < last:
        store_default(pointer, op)
        op += 1
    if program.flexible:
        cursor.program = <PyObject *> program
        cursor.op = NULL
        read_tags(program, message, cursor)
    return message


cdef inline int store_default(PyObject *pointer, Op *op) except -1:
    if op.factory == NULL:
        store(pointer, op.offset, <object> op.default)
    elif op.makes_list:
        store(pointer, op.offset, PyList_New(0))
    else:
        store(pointer, op.offset, (<object> op.factory)())
    return 0


cdef int read_tags(Program program, message, Cursor cursor) except -1:
    cdef PyObject *pointer = <PyObject *> message
    cdef Op *op = program.tagged
    cdef Op *last = op + program.n_tagged
    cdef Py_ssize_t count, tag, size, previous = -1
    while op < last:
        store_default(pointer, op)
        op += 1
    count = read_uvarint(cursor)
    if count == 0:
        return 0
    if count > MAX_TAGS:
        raise ProtocolError(f"{count} tagged fields, {MAX_TAGS} at most")
    while count > 0:
        count -= 1
        tag = read_uvarint(cursor)
        size = read_uvarint(cursor)
        if tag <= previous:
            raise ProtocolError(f"tag {tag} after tag {previous}")
        previous = tag
        if size > cursor.end - cursor.at:
            raise ProtocolError(f"tag {tag} has {size} bytes, {cursor.end - cursor.at} left")
        read_tag(program, message, cursor, tag, size)
    return 0


cdef int read_tag(Program program, message, Cursor cursor, Py_ssize_t tag, Py_ssize_t size) except -1:
    cdef Py_ssize_t i
    cdef Op *op
    cdef const uint8_t *whole = cursor.end
    for i in range(program.n_tagged):
        op = program.tagged + i
        if op.tag == tag:
            cursor.op = op
            cursor.end = cursor.at + size
            value = read_value(op, op.type, op.nullable, cursor)
            cursor.program = <PyObject *> program
            cursor.op = op
            if cursor.at != cursor.end:
                raise ProtocolError("its tag has bytes left over")
            cursor.op = NULL
            cursor.end = whole
            replace(<PyObject *> message, op.offset, value)
            return 0
    if message.unknown_tags is None:
        message.unknown_tags = {}
    message.unknown_tags[tag] = PyBytes_FromStringAndSize(<const char *> cursor.at, size)
    cursor.at += size
    return 0


cdef inline int need(Cursor cursor, Py_ssize_t size) except -1:
    if size > cursor.end - cursor.at:
        raise ProtocolError(f"{size} bytes wanted, {cursor.end - cursor.at} left")
    return 0


cdef inline Py_ssize_t read_uvarint(Cursor cursor) except -1:
    cdef uint64_t value
    cdef uint8_t byte
    cdef int shift = 7
    need(cursor, 1)
    byte = cursor.at[0]
    cursor.at += 1
    value = byte & 0x7F
    while byte >= 0x80:
        if shift > 28:
            raise ProtocolError("a varint runs over five bytes")
        need(cursor, 1)
        byte = cursor.at[0]
        cursor.at += 1
        value |= (<uint64_t> (byte & 0x7F)) << shift
        shift += 7
    if value > 0xFFFFFFFF:
        raise ProtocolError(f"a varint holds {value}, more than 32 bits")
    return <Py_ssize_t> value


cdef inline Py_ssize_t read_length(Op *op, int type, bint nullable, Cursor cursor) except -2:
    """Read a length or count; -1 is null."""
    cdef Py_ssize_t size
    if op.compact:
        size = read_uvarint(cursor) - 1
    elif type == STRING:
        need(cursor, 2)
        size = <int16_t> rk_get16(cursor.at)
        cursor.at += 2
    else:
        need(cursor, 4)
        size = <int32_t> rk_get32(cursor.at)
        cursor.at += 4
    if size < 0:
        if size < -1:
            raise ProtocolError(f"a {WHAT[type]} of length {size}")
        if not nullable:
            raise ProtocolError(f"null, but this {WHAT[type]} cannot be null")
    elif type != ARRAY and size > cursor.end - cursor.at:
        raise ProtocolError(f"a {WHAT[type]} of {size} bytes, {cursor.end - cursor.at} left")
    return size


WHAT = {STRING: "string", BYTES: "byte string", RECORDS: "byte string", ARRAY: "array"}


cdef object read_value(Op *op, int type, bint nullable, Cursor cursor):
    cdef const uint8_t *at
    cdef Py_ssize_t size
    if type <= ERROR:
        size = SIZES[type]
        need(cursor, size)
        at = cursor.at
        cursor.at += size
        return fixed(type, at)
    if type <= RECORDS:
        size = read_length(op, type, nullable, cursor)
        if size < 0:
            return None
        at = cursor.at
        cursor.at += size
        if type == STRING:
            return text(at, size)
        if type == BYTES:
            return PyBytes_FromStringAndSize(<const char *> at, size)
        return slice_view(cursor, at - cursor.start, size)
    if type == STRUCT:
        if nullable and op.tag >= 0:
            # After a tag Kafka writes 0 and 1 for null and not null; elsewhere -1 and 1.
            if read_uvarint(cursor) == 0:
                return None
        elif nullable:
            need(cursor, 1)
            cursor.at += 1
            if <signed char> (cursor.at - 1)[0] < 0:
                return None
        return read_struct(<Program> op.program, cursor)
    return read_array(op, cursor)


cdef inline object fixed(int type, const uint8_t *at):
    cdef int16_t code
    cdef uint64_t bits
    cdef double number
    if type == I32:
        return PyLong_FromLong(<int32_t> rk_get32(at))
    if type == I64:
        return PyLong_FromLongLong(<int64_t> rk_get64(at))
    if type == I16:
        return PyLong_FromLong(<int16_t> rk_get16(at))
    if type == ERROR:
        code = <int16_t> rk_get16(at)
        if -1 <= code < CODES - 1 and CODE_MEMBERS[code + 1] != <PyObject *> None:
            return <object> CODE_MEMBERS[code + 1]
        return ErrorCode(code)
    if type == I8:
        return PyLong_FromLong(<signed char> at[0])
    if type == BOOL:
        return at[0] != 0
    if type == UUID:
        return PyBytes_FromStringAndSize(<const char *> at, 16)
    if type == U16:
        return PyLong_FromLong(rk_get16(at))
    if type == U32:
        return PyLong_FromLongLong(rk_get32(at))
    bits = rk_get64(at)
    memcpy(&number, &bits, 8)
    return number


cdef object text(const uint8_t *at, Py_ssize_t size):
    try:
        return PyUnicode_DecodeUTF8(<const char *> at, size, NULL)
    except UnicodeDecodeError:
        raise ProtocolError("a string that is not UTF-8") from None


cdef object slice_view(Cursor cursor, Py_ssize_t start, Py_ssize_t size):
    if cursor.view is None:
        view = memoryview(cursor.buffer)
        cursor.view = view if view.format == "B" and view.ndim == 1 else view.cast("B")
    return cursor.view[start : start + size]


cdef object read_array(Op *op, Cursor cursor):
    cdef Py_ssize_t count = read_length(op, ARRAY, op.nullable, cursor)
    cdef Py_ssize_t i
    if count < 0:
        return None
    if count > (cursor.end - cursor.at) // op.min_element:
        raise ProtocolError(f"an array of {count} elements, {cursor.end - cursor.at} bytes left")
    cursor.elements -= count
    if cursor.elements < 0:
        raise ProtocolError("more array elements than one message may have")
    # The list grows as elements are read: a failure half-way must not leave holes in it.
    items = []
    if op.program != NULL:
        for i in range(count):
            items.append(read_struct(<Program> op.program, cursor))
    else:
        for i in range(count):
            items.append(read_value(op, op.element, False, cursor))
        PyObject_GC_UnTrack(<PyObject *> items)
    return items


# ---------------------------------------------------------------------------------------- writing


cdef enum:
    SMALL = 1024


@cython.final
@cython.freelist(4)
cdef class Writer:
    """Bytes so far, and the parts that were finished before them."""

    # Most messages fit into the writer itself; longer ones move to the heap.
    cdef uint8_t small[SMALL]
    cdef uint8_t *data
    cdef Py_ssize_t size
    cdef Py_ssize_t capacity
    cdef Py_ssize_t flushed
    # While a tagged field is written everything is copied: its size must stand before it.
    cdef int nested
    cdef list parts
    cdef PyObject *program
    cdef Op *op

    def __cinit__(self):
        self.capacity = SMALL
        self.data = self.small
        self.parts = []

    def __dealloc__(self):
        if self.data != self.small:
            PyMem_Free(self.data)

    cdef inline int room(self, Py_ssize_t size) except -1:
        """Make room for `size` more bytes."""
        if self.size + size <= self.capacity:
            return 0
        return self.grow(size)

    cdef int grow(self, Py_ssize_t size) except -1:
        cdef uint8_t *grown
        cdef Py_ssize_t capacity = self.capacity
        while capacity < self.size + size:
            capacity *= 2
        grown = <uint8_t *> PyMem_Realloc(NULL if self.data == self.small else self.data, capacity)
        if grown == NULL:
            raise MemoryError()
        if self.data == self.small:
            memcpy(grown, self.small, self.size)
        self.data = grown
        self.capacity = capacity
        return 0

    cdef inline int uvarint(self, uint64_t value) except -1:
        self.room(10)
        while value > 0x7F:
            self.data[self.size] = <uint8_t> (value & 0x7F) | 0x80
            self.size += 1
            value >>= 7
        self.data[self.size] = <uint8_t> value
        self.size += 1
        return 0

    cdef inline int raw(self, const void *data, Py_ssize_t size) except -1:
        self.room(size)
        memcpy(self.data + self.size, data, size)
        self.size += size
        return 0

    cdef int flush(self) except -1:
        if self.size:
            self.parts.append(PyBytes_FromStringAndSize(<const char *> self.data, self.size))
            self.flushed += self.size
            self.size = 0
        return 0

    cdef str place(self):
        if self.program == NULL or self.op == NULL:
            return ""
        return f"{(<Program> self.program).message.__name__}.{<object> self.op.name}: "


class Misfit(Exception):
    """A value that does not fit its field; never leaves this module."""


def write(table, message):
    """Write one message as a list of parts."""
    cdef Writer writer = Writer.__new__(Writer)
    run(program_of(table), message, writer)
    writer.flush()
    return writer.parts


def write_frame(head, header, table, message):
    """Write the common length, a header and a message, as a list of parts."""
    cdef Writer writer = Writer.__new__(Writer)
    cdef Py_ssize_t size
    writer.size = 4
    run(program_of(head), header, writer)
    run(program_of(table), message, writer)
    writer.flush()
    size = writer.flushed - 4
    if size > 0x7FFFFFFF:
        raise ValueError(f"{type(message).__name__}: a frame of {size} bytes is over 2 GiB")
    # The first part is ours alone until we return it.
    rk_put32(<uint8_t *> PyBytes_AS_STRING(writer.parts[0]), <uint32_t> size)
    return writer.parts


cdef int run(Program program, message, Writer writer) except -1:
    try:
        write_struct(program, message, writer)
    except Misfit as misfit:
        raise ValueError(f"{writer.place()}{misfit}") from None
    return 0


cdef int write_struct(Program program, message, Writer writer) except -1:
    cdef PyObject *pointer = <PyObject *> message
    cdef Op *op = program.steps
    cdef Op *last = op + program.n_steps
    if Py_TYPE(message) != program.cls:
        raise TypeError(f"a {type(message).__name__} where a {program.message.__name__} belongs")
    while op < last:
        writer.program = <PyObject *> program
        writer.op = op
        write_value(op, op.type, op.nullable, load(pointer, op), writer)
        op += 1
    if program.flexible:
        write_tags(program, message, writer)
    return 0


cdef inline object load(PyObject *pointer, Op *op):
    cdef PyObject *value = (<PyObject **> ((<char *> pointer) + op.offset))[0]
    if value == NULL:
        raise AttributeError(f"{<object> op.name} is not set")
    return <object> value


cdef int write_tags(Program program, message, Writer writer) except -1:
    cdef PyObject *pointer = <PyObject *> message
    cdef PyObject *kept = (<PyObject **> ((<char *> pointer) + program.unknown_offset))[0]
    cdef uint64_t present = 0
    cdef Py_ssize_t i, count = 0
    cdef Op *op
    dict_of_unknown = <object> kept if kept != NULL else None
    if dict_of_unknown:
        return write_mixed_tags(program, message, dict_of_unknown, writer)
    for i in range(program.n_tagged):
        op = program.tagged + i
        if not is_default(op, load(pointer, op)):
            present |= (<uint64_t> 1) << i
            count += 1
    writer.uvarint(count)
    if count == 0:
        return 0
    for i in range(program.n_tagged):
        if present >> i & 1:
            write_tag(program, program.tagged + i, message, writer)
    return 0


cdef int write_mixed_tags(Program program, message, dict unknown, Writer writer) except -1:
    """Write known and unknown tagged fields in the order of their tags: the rare case."""
    cdef Py_ssize_t i
    cdef Op *op
    tags = dict.fromkeys(unknown, -1)
    for i in range(program.n_tagged):
        op = program.tagged + i
        if not is_default(op, load(<PyObject *> message, op)):
            tags[op.tag] = i
    writer.uvarint(len(tags))
    for tag in sorted(tags):
        i = tags[tag]
        if i >= 0:
            write_tag(program, program.tagged + i, message, writer)
        else:
            content = bytes(unknown[tag])
            writer.uvarint(tag)
            writer.uvarint(len(content))
            writer.raw(PyBytes_AS_STRING(content), PyBytes_GET_SIZE(content))
    return 0


cdef int write_tag(Program program, Op *op, message, Writer writer) except -1:
    cdef Py_ssize_t start, size, head
    writer.uvarint(op.tag)
    writer.program = <PyObject *> program
    writer.op = op
    start = writer.size
    writer.nested += 1
    write_value(op, op.type, op.nullable, load(<PyObject *> message, op), writer)
    writer.nested -= 1
    size = writer.size - start
    # The size precedes the content. Write it after the content to learn its length, then swap them.
    writer.uvarint(size)
    head = writer.size - start - size
    writer.room(head)
    memmove(writer.data + start + head, writer.data + start, size + head)
    memcpy(writer.data + start, writer.data + start + head + size, head)
    return 0


cdef bint is_default(Op *op, value) except -1:
    if <PyObject *> value == op.default:
        return True
    return PyObject_RichCompareBool(value, <object> op.default, Py_EQ)


cdef int write_value(Op *op, int type, bint nullable, value, Writer writer) except -1:
    if type <= U32 or type == ERROR:
        return write_integer(type, value, writer)
    if type == STRING:
        return write_string(op, nullable, value, writer)
    if type == BYTES or type == RECORDS:
        return write_bytes(op, nullable, value, writer)
    if type == ARRAY:
        return write_array(op, value, writer)
    if type == STRUCT:
        return write_inner(op, nullable, value, writer)
    if type == UUID:
        if not isinstance(value, bytes) or PyBytes_GET_SIZE(value) != 16:
            raise Misfit("not the 16 bytes of a uuid")
        return writer.raw(PyBytes_AS_STRING(value), 16)
    return write_f64(value, writer)


cdef int write_f64(value, Writer writer) except -1:
    cdef double number
    cdef uint64_t bits
    if not isinstance(value, (int, float)):
        raise Misfit(f"{type(value).__name__}, where a number belongs")
    number = PyFloat_AsDouble(value)
    memcpy(&bits, &number, 8)
    writer.room(8)
    rk_put64(writer.data + writer.size, bits)
    writer.size += 8
    return 0


cdef inline int write_integer(int type, value, Writer writer) except -1:
    cdef int overflow = 0
    cdef long long number
    cdef uint8_t *at
    cdef Py_ssize_t size
    if type == BOOL:
        number = 1 if value else 0
    else:
        if type == ERROR:
            type = I16
        if not isinstance(value, int):
            raise Misfit(f"{value.__class__.__name__}, where a number belongs")
        number = PyLong_AsLongLongAndOverflow(value, &overflow)
        if overflow or number < LOWS[type] or number > HIGHS[type]:
            raise Misfit(f"{int(value)} is not between {LOWS[type]} and {HIGHS[type]}")
    size = SIZES[type]
    writer.room(size)
    at = writer.data + writer.size
    writer.size += size
    if size == 4:
        rk_put32(at, <uint32_t> number)
    elif size == 8:
        rk_put64(at, <uint64_t> number)
    elif size == 2:
        rk_put16(at, <uint16_t> number)
    else:
        at[0] = <uint8_t> number
    return 0


cdef int write_length(Op *op, int type, Py_ssize_t size, Writer writer) except -1:
    if op.compact:
        return writer.uvarint(<uint64_t> (size + 1))
    if type == STRING:
        if size > 0x7FFF:
            raise Misfit(f"{size} bytes, 32767 at most")
        writer.room(2)
        rk_put16(writer.data + writer.size, <uint16_t> size)
        writer.size += 2
        return 0
    if size > 0x7FFFFFFF:
        raise Misfit(f"{size} bytes, 2147483647 at most")
    writer.room(4)
    rk_put32(writer.data + writer.size, <uint32_t> size)
    writer.size += 4
    return 0


cdef int write_null(Op *op, int type, bint nullable, Writer writer) except -1:
    if not nullable:
        raise Misfit("None, but it cannot be null in this version")
    return write_length(op, type, -1, writer)


cdef int write_string(Op *op, bint nullable, value, Writer writer) except -1:
    cdef Py_ssize_t size
    cdef const char *data
    if value is None:
        return write_null(op, STRING, nullable, writer)
    if not isinstance(value, str):
        raise Misfit(f"{type(value).__name__}, where a string belongs")
    try:
        data = PyUnicode_AsUTF8AndSize(value, &size)
    except UnicodeEncodeError:
        raise Misfit("a string with a lone surrogate") from None
    write_length(op, STRING, size, writer)
    return writer.raw(data, size)


cdef int write_bytes(Op *op, bint nullable, value, Writer writer) except -1:
    cdef Py_ssize_t size
    if value is None:
        return write_null(op, BYTES, nullable, writer)
    if isinstance(value, bytes):
        write_length(op, BYTES, PyBytes_GET_SIZE(value), writer)
        return write_piece(value, PyBytes_GET_SIZE(value), writer)
    if isinstance(value, _Parts):
        pieces = [flat(piece) for piece in value]
        size = 0
        for piece in pieces:
            size += len(piece)
        write_length(op, BYTES, size, writer)
        for piece in pieces:
            write_piece(piece, len(piece), writer)
        return 0
    piece = flat(value)
    size = len(piece)
    write_length(op, BYTES, size, writer)
    return write_piece(piece, size, writer)


cdef object flat(value):
    """Return a buffer whose `len` is its size in bytes."""
    if isinstance(value, (bytes, bytearray)):
        return value
    if not isinstance(value, memoryview):
        raise Misfit(f"{type(value).__name__}, where bytes belong")
    if not value.c_contiguous:
        raise Misfit("a view with gaps")
    return value if value.format == "B" and value.ndim == 1 else value.cast("B")


cdef int write_piece(piece, Py_ssize_t size, Writer writer) except -1:
    cdef Py_buffer raw
    if size >= PART_BYTES and not writer.nested:
        writer.flush()
        writer.parts.append(piece)
        writer.flushed += size
        return 0
    PyObject_GetBuffer(piece, &raw, PyBUF_SIMPLE)
    try:
        writer.raw(raw.buf, raw.len)
    finally:
        PyBuffer_Release(&raw)
    return 0


cdef int write_inner(Op *op, bint nullable, value, Writer writer) except -1:
    if nullable:
        writer.room(1)
        if value is not None:
            writer.data[writer.size] = 1
        else:
            writer.data[writer.size] = 0 if op.tag >= 0 else 0xFF
        writer.size += 1
        if value is None:
            return 0
    elif value is None:
        raise Misfit("None, but it cannot be null in this version")
    return write_struct(<Program> op.program, value, writer)


cdef int write_array(Op *op, value, Writer writer) except -1:
    cdef Py_ssize_t i, count
    cdef bint structs = op.program != NULL
    cdef bint is_tuple = isinstance(value, tuple)
    if value is None:
        return write_null(op, ARRAY, op.nullable, writer)
    if not isinstance(value, (list, tuple)):
        raise Misfit(f"{type(value).__name__}, where a list belongs")
    count = len(value)
    write_length(op, ARRAY, count, writer)
    for i in range(count):
        # Comparing a field with its default may run Python code, which could shorten the list.
        if i >= len(value):
            raise Misfit("a list that shrinks while it is written")
        item = value[i] if is_tuple else <object> PyList_GET_ITEM(value, i)
        if structs:
            write_struct(<Program> op.program, item, writer)
        elif op.element <= U32:
            write_integer(op.element, item, writer)
        else:
            write_value(op, op.element, False, item, writer)
    return 0
