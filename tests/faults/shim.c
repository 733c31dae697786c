/* Loaded before the C library: makes writes and syncs of a broker's files fail while a test says so.

   A fault is a file in the folder $ROOKERY_TEST_FAULTS, named after the call and the kind of file:
   "write-journal", "sync-journal", "write-cluster", "sync-cluster". A write that fails has written
   its first half, as disks do. A sync that fails syncs nothing. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static const char *kind_of(int fd) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size < 0) return NULL;
    path[size] = 0;
    if (strstr(path, "/journal/")) return "journal";
    if (strstr(path, "/cluster.sqlite-wal")) return "cluster";
    return NULL;
}

static int is_due(const char *call, int fd) {
    const char *folder = getenv("ROOKERY_TEST_FAULTS"), *kind = kind_of(fd);
    char path[PATH_MAX];
    if (!folder || !kind) return 0;
    snprintf(path, sizeof path, "%s/%s-%s", folder, call, kind);
    int before = errno, due = access(path, F_OK) == 0;
    errno = before;
    return due;
}

#define REAL(name) static __typeof__(&name) real; if (!real) real = dlsym(RTLD_NEXT, #name)

#define SYNC(name) \
    int name(int fd) { \
        REAL(name); \
        if (is_due("sync", fd)) { errno = EIO; return -1; } \
        return real(fd); \
    }
SYNC(fsync)
SYNC(fdatasync)

#define PWRITE(name, offset_t) \
    ssize_t name(int fd, const void *data, size_t size, offset_t offset) { \
        REAL(name); \
        if (is_due("write", fd)) { real(fd, data, size / 2, offset); errno = EIO; return -1; } \
        return real(fd, data, size, offset); \
    }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

#define PWRITEV(name, offset_t) \
    ssize_t name(int fd, const struct iovec *parts, int count, offset_t offset) { \
        REAL(name); \
        if (is_due("write", fd)) { \
            real(fd, parts, (count + 1) / 2, offset); \
            errno = EIO; \
            return -1; \
        } \
        return real(fd, parts, count, offset); \
    }
PWRITEV(pwritev, off_t)
PWRITEV(pwritev64, off64_t)

#define PWRITEV2(name, offset_t) \
    ssize_t name(int fd, const struct iovec *parts, int count, offset_t offset, int flags) { \
        REAL(name); \
        if (is_due("write", fd)) { \
            real(fd, parts, (count + 1) / 2, offset, flags); \
            errno = EIO; \
            return -1; \
        } \
        return real(fd, parts, count, offset, flags); \
    }
PWRITEV2(pwritev2, off_t)
PWRITEV2(pwritev64v2, off64_t)

ssize_t write(int fd, const void *data, size_t size) {
    REAL(write);
    if (is_due("write", fd)) { real(fd, data, size / 2); errno = EIO; return -1; }
    return real(fd, data, size);
}
