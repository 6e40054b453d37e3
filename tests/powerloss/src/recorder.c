/*
 * The recorder: preloaded into a process, it records the actions of the process on the files under one
 * directory.
 *
 * SPUR_POWERLOSS_ROOT  the directory, absolute and without symbolic links
 * SPUR_POWERLOSS_LOG   the file of the records; must be outside the directory
 *
 * Records of all threads and processes are in one order, which may only be stricter than the real one:
 *   - a write, a new size or a new name is recorded after the call has returned;
 *   - a sync is recorded when it begins and when it has ended, and covers the records before its begin;
 *   - bytes to a pipe or socket are recorded before they are sent.
 * So every action recorded before such bytes had happened before any process could have seen them.
 *
 * SPUR_POWERLOSS_FAIL  "N KIND": the Nth call that changes something under the directory, counted in each process, fails:
 *                      `io` and `full` once, `broken` and `filled` from then on, `short` writes half and reports
 *                      that, `torn` writes half and fails. Without a log nothing is recorded.
 * SPUR_POWERLOSS_FAIL_IN  the only program in which calls fail
 *
 * Some changes are not recorded: those by a raw system call or in shared writable memory. A comparison of the
 * disk rebuilt from the records with the real one finds them. Copies inside the kernel are refused: programs
 * then read and write.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* The kinds are the same as in record.rs. */
enum kind { CREATE = 1, DIRECTORY, WRITE, TRUNCATE, SYNC_BEGIN, SYNC_END, RENAME, REMOVE, LINK, MARK };

struct header {
	uint32_t magic;
	uint32_t kind;
	uint64_t inode;  /* of the file or directory; 0 where a path identifies it */
	uint64_t number; /* offset, size, or the number that links SYNC_END to SYNC_BEGIN */
	uint64_t length; /* of the content or paths that follow */
};

#define MAGIC 0x4c505253u
#define MARK_BYTES 4096u

static _Atomic uint64_t next_sync = 1;

/* Declares `real`, the C library's definition of a function. */
#define REAL(name) \
	static __typeof__(&name) real; \
	if (!real) \
		real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

static void put(enum kind kind, uint64_t inode, uint64_t number, const void *content, size_t length)
{
	const char *log = getenv("SPUR_POWERLOSS_LOG");
	if (!log)
		return;
	int saved = errno;
	struct header header = {MAGIC, kind, inode, number, length};
	struct iovec parts[2] = {{&header, sizeof header}, {(void *)content, length}};
	/* The log is opened each time: the process may close every descriptor it does not know. */
	int fd = (int)syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	/* One append is one record, even if other threads and processes append. */
	if (fd < 0 || syscall(SYS_writev, fd, parts, 2) != (long)(sizeof header + length))
		abort();
	syscall(SYS_close, fd);
	errno = saved;
}

static int under_root(const char *path)
{
	const char *root = getenv("SPUR_POWERLOSS_ROOT");
	size_t length = root ? strlen(root) : 0;
	return length && !strncmp(path, root, length) && (path[length] == '/' || !path[length]);
}

/* The path under which a descriptor was opened, or nothing. */
static int path_of(int fd, char path[PATH_MAX])
{
	char name[64];
	snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
	ssize_t length = syscall(SYS_readlinkat, AT_FDCWD, name, path, PATH_MAX - 1);
	if (length < 0)
		return 0;
	path[length] = 0;
	return 1;
}

/* An absolute path with no link in its directory part, as the kernel would show it. */
static int resolve(int dirfd, const char *path, char resolved[PATH_MAX])
{
	char whole[PATH_MAX], parent[PATH_MAX];
	if (path[0] == '/') {
		snprintf(whole, sizeof whole, "%s", path);
	} else {
		if (dirfd == AT_FDCWD ? !getcwd(parent, sizeof parent) : !path_of(dirfd, parent))
			return 0;
		if ((size_t)snprintf(whole, sizeof whole, "%s/%s", parent, path) >= sizeof whole)
			return 0;
	}
	size_t length = strlen(whole);
	while (length > 1 && whole[length - 1] == '/')
		whole[--length] = 0;
	char *name = strrchr(whole, '/');
	*name++ = 0;
	if (!realpath(*whole ? whole : "/", parent))
		return 0;
	return (size_t)snprintf(resolved, PATH_MAX, "%s/%s", strcmp(parent, "/") ? parent : "", name) < PATH_MAX &&
	       under_root(resolved);
}

/* The inode of a descriptor if it is a file or directory under the root, 0 if it is not. */
static uint64_t tracked(int fd, char path[PATH_MAX])
{
	int saved = errno;
	struct stat status;
	uint64_t inode = 0;
	if (path_of(fd, path) && under_root(path) && !fstat(fd, &status) &&
	    (S_ISREG(status.st_mode) || S_ISDIR(status.st_mode)))
		inode = status.st_ino;
	errno = saved;
	return inode;
}

static _Atomic long changes;

/* The error with which a changing call must fail, 0 for none. *half: half of a write is done first. */
static int failure(int *half)
{
	const char *wanted = getenv("SPUR_POWERLOSS_FAIL"), *only = getenv("SPUR_POWERLOSS_FAIL_IN");
	char *kind;
	long number = wanted ? strtol(wanted, &kind, 10) : 0;
	*half = 0;
	if (!number || (only && strcmp(only, program_invocation_short_name)))
		return 0;
	long now = atomic_fetch_add(&changes, 1) + 1;
	kind++;
	if (now >= number && !strcmp(kind, "broken"))
		return EIO;
	if (now >= number && !strcmp(kind, "filled"))
		return ENOSPC;
	if (now != number)
		return 0;
	if (!strcmp(kind, "full"))
		return ENOSPC;
	*half = !strcmp(kind, "short") || !strcmp(kind, "torn");
	return strcmp(kind, "short") ? EIO : 0;
}

/* The error of a call that changes a file, 0 if it may go on. */
static int refused(int fd)
{
	char path[PATH_MAX];
	int half;
	int error = getenv("SPUR_POWERLOSS_FAIL") && tracked(fd, path) ? failure(&half) : 0;
	if (error)
		errno = error;
	return error;
}

/* The error of a call that changes names, 0 if it may go on. */
static int refused_name(int dirfd, const char *path)
{
	char whole[PATH_MAX];
	int saved = errno, half;
	int error = getenv("SPUR_POWERLOSS_FAIL") && resolve(dirfd, path, whole) ? failure(&half) : 0;
	errno = error ? error : saved;
	return error;
}

/* The number of bytes that a write may have: fewer for a short write; a torn one fails after those. */
static size_t allowed(int fd, size_t length, int *error)
{
	char path[PATH_MAX];
	int half = 0;
	*error = getenv("SPUR_POWERLOSS_FAIL") && tracked(fd, path) ? failure(&half) : 0;
	return half ? (length + 1) / 2 : *error ? 0 : length;
}

static int speaks(int fd)
{
	int saved = errno;
	struct stat status;
	int answer = !fstat(fd, &status) && (S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode));
	errno = saved;
	return answer;
}

static void mark_parts(int fd, const struct iovec *parts, size_t count)
{
	char said[MARK_BYTES];
	size_t length = 0;
	if (!speaks(fd))
		return;
	for (size_t i = 0; i < count && length < sizeof said; i++) {
		size_t room = sizeof said - length;
		size_t more = parts[i].iov_len < room ? parts[i].iov_len : room;
		memcpy(said + length, parts[i].iov_base, more);
		length += more;
	}
	put(MARK, 0, (uint64_t)fd, said, length);
}

static void mark(int fd, const void *content, size_t length)
{
	struct iovec part = {(void *)content, length};
	mark_parts(fd, &part, 1);
}

/* Records the bytes written at a known offset. */
static void wrote(int fd, const struct iovec *parts, int count, ssize_t written, off_t offset)
{
	char path[PATH_MAX];
	uint64_t inode;
	if (written <= 0 || !(inode = tracked(fd, path)))
		return;
	for (int i = 0; i < count && written > 0; i++) {
		size_t length = parts[i].iov_len < (size_t)written ? parts[i].iov_len : (size_t)written;
		put(WRITE, inode, (uint64_t)offset, parts[i].iov_base, length);
		offset += (off_t)length;
		written -= (ssize_t)length;
	}
}

/* Records the bytes of a write that moved the position of the descriptor. */
static void wrote_on(int fd, const struct iovec *parts, int count, ssize_t written)
{
	int saved = errno;
	off_t end = lseek(fd, 0, SEEK_CUR);
	errno = saved;
	if (end >= written)
		wrote(fd, parts, count, written, end - written);
}

ssize_t write(int fd, const void *content, size_t length)
{
	REAL(write);
	mark(fd, content, length);
	int error;
	length = allowed(fd, length, &error);
	ssize_t written = length || !error ? real(fd, content, length) : -1;
	struct iovec part = {(void *)content, length};
	wrote_on(fd, &part, 1, written);
	if (error)
		errno = error;
	return error ? -1 : written;
}

ssize_t writev(int fd, const struct iovec *parts, int count)
{
	REAL(writev);
	mark_parts(fd, parts, (size_t)count);
	if (refused(fd))
		return -1;
	ssize_t written = real(fd, parts, count);
	wrote_on(fd, parts, count, written);
	return written;
}

#define PWRITE(name) \
	ssize_t name(int fd, const void *content, size_t length, off64_t offset) \
	{ \
		REAL(name); \
		int error; \
		length = allowed(fd, length, &error); \
		ssize_t written = length || !error ? real(fd, content, length, offset) : -1; \
		struct iovec part = {(void *)content, length}; \
		wrote(fd, &part, 1, written, offset); \
		if (error) \
			errno = error; \
		return error ? -1 : written; \
	}
PWRITE(pwrite)
PWRITE(pwrite64)

#define PWRITEV(name) \
	ssize_t name(int fd, const struct iovec *parts, int count, off64_t offset) \
	{ \
		REAL(name); \
		if (refused(fd)) \
			return -1; \
		ssize_t written = real(fd, parts, count, offset); \
		wrote(fd, parts, count, written, offset); \
		return written; \
	}
PWRITEV(pwritev)
PWRITEV(pwritev64)

ssize_t send(int fd, const void *content, size_t length, int flags)
{
	REAL(send);
	mark(fd, content, length);
	return real(fd, content, length, flags);
}

ssize_t sendto(int fd, const void *content, size_t length, int flags, const struct sockaddr *to, socklen_t size)
{
	REAL(sendto);
	mark(fd, content, length);
	return real(fd, content, length, flags, to, size);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
	REAL(sendmsg);
	mark_parts(fd, message->msg_iov, message->msg_iovlen);
	return real(fd, message, flags);
}

/* True if an open is about to make a new name. */
static int creates(int dirfd, const char *path, int flags)
{
	int saved = errno;
	struct stat status;
	int new = (flags & O_CREAT) && fstatat(dirfd, path, &status, 0) && errno == ENOENT;
	errno = saved;
	return new;
}

static int opened(int fd, int flags, int new)
{
	char path[PATH_MAX];
	uint64_t inode = fd < 0 ? 0 : tracked(fd, path);
	if (inode && new)
		put(CREATE, inode, 0, path, strlen(path));
	else if (inode && (flags & O_TRUNC))
		put(TRUNCATE, inode, 0, NULL, 0);
	return fd;
}

#define MODE(flags) \
	mode_t mode = 0; \
	if ((flags) & (O_CREAT | __O_TMPFILE)) { \
		va_list rest; \
		va_start(rest, flags); \
		mode = va_arg(rest, mode_t); \
		va_end(rest); \
	}

#define OPEN(name) \
	int name(const char *path, int flags, ...) \
	{ \
		REAL(name); \
		MODE(flags) \
		int new = creates(AT_FDCWD, path, flags); \
		if (new && refused_name(AT_FDCWD, path)) \
			return -1; \
		return opened(real(path, flags, mode), flags, new); \
	}
OPEN(open)
OPEN(open64)

#define OPENAT(name) \
	int name(int dirfd, const char *path, int flags, ...) \
	{ \
		REAL(name); \
		MODE(flags) \
		int new = creates(dirfd, path, flags); \
		if (new && refused_name(dirfd, path)) \
			return -1; \
		return opened(real(dirfd, path, flags, mode), flags, new); \
	}
OPENAT(openat)
OPENAT(openat64)

#define CREAT(name) \
	int name(const char *path, mode_t mode) \
	{ \
		REAL(name); \
		int new = creates(AT_FDCWD, path, O_CREAT); \
		return opened(real(path, mode), O_TRUNC, new); \
	}
CREAT(creat)
CREAT(creat64)

#define FTRUNCATE(name) \
	int name(int fd, off64_t size) \
	{ \
		REAL(name); \
		char path[PATH_MAX]; \
		if (refused(fd)) \
			return -1; \
		int result = real(fd, size); \
		uint64_t inode = result ? 0 : tracked(fd, path); \
		if (inode) \
			put(TRUNCATE, inode, (uint64_t)size, NULL, 0); \
		return result; \
	}
FTRUNCATE(ftruncate)
FTRUNCATE(ftruncate64)

/* Space allocated for a file counts as its size. Its content is unknown until written, so zeros serve. */
static void grown(int fd, int failed)
{
	char path[PATH_MAX];
	struct stat status;
	uint64_t inode = failed ? 0 : tracked(fd, path);
	if (inode && !fstat(fd, &status))
		put(TRUNCATE, inode, (uint64_t)status.st_size, NULL, 0);
}

#define FALLOCATE(name) \
	int name(int fd, int mode, off64_t offset, off64_t length) \
	{ \
		REAL(name); \
		int result = real(fd, mode, offset, length); \
		grown(fd, result); \
		return result; \
	}
FALLOCATE(fallocate)
FALLOCATE(fallocate64)

#define POSIX_FALLOCATE(name) \
	int name(int fd, off64_t offset, off64_t length) \
	{ \
		REAL(name); \
		int result = real(fd, offset, length); \
		grown(fd, result); \
		return result; \
	}
POSIX_FALLOCATE(posix_fallocate)
POSIX_FALLOCATE(posix_fallocate64)

#define SYNC(name) \
	int name(int fd) \
	{ \
		REAL(name); \
		char path[PATH_MAX]; \
		uint64_t inode = tracked(fd, path); \
		/* Numbers of different processes must differ. */ \
		uint64_t sync = (uint64_t)getpid() << 32 | atomic_fetch_add(&next_sync, 1); \
		if (refused(fd)) \
			return -1; \
		if (inode) \
			put(SYNC_BEGIN, inode, sync, path, strlen(path)); \
		int result = real(fd); \
		if (inode && !result) \
			put(SYNC_END, inode, sync, NULL, 0); \
		return result; \
	}
SYNC(fsync)
SYNC(fdatasync)

static int paired(enum kind kind, int from_dir, const char *from, int to_dir, const char *to, int result)
{
	char paths[2 * PATH_MAX];
	if (result)
		return result;
	int saved = errno;
	int from_known = resolve(from_dir, from, paths);
	size_t length = from_known ? strlen(paths) + 1 : 0;
	int to_known = resolve(to_dir, to, paths + length);
	if (from_known && to_known)
		put(kind, 0, 0, paths, length + strlen(paths + length));
	else if (from_known != to_known)
		abort(); /* The recorder cannot handle a file that enters or leaves the directory. */
	errno = saved;
	return result;
}

int rename(const char *from, const char *to)
{
	REAL(rename);
	if (refused_name(AT_FDCWD, to))
		return -1;
	return paired(RENAME, AT_FDCWD, from, AT_FDCWD, to, real(from, to));
}

int renameat(int from_dir, const char *from, int to_dir, const char *to)
{
	REAL(renameat);
	if (refused_name(to_dir, to))
		return -1;
	return paired(RENAME, from_dir, from, to_dir, to, real(from_dir, from, to_dir, to));
}

int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
	REAL(renameat2);
	if (flags & RENAME_EXCHANGE) {
		errno = EINVAL;
		return -1;
	}
	return paired(RENAME, from_dir, from, to_dir, to, real(from_dir, from, to_dir, to, flags));
}

int link(const char *from, const char *to)
{
	REAL(link);
	if (refused_name(AT_FDCWD, to))
		return -1;
	return paired(LINK, AT_FDCWD, from, AT_FDCWD, to, real(from, to));
}

int linkat(int from_dir, const char *from, int to_dir, const char *to, int flags)
{
	REAL(linkat);
	if (refused_name(to_dir, to))
		return -1;
	return paired(LINK, from_dir, from, to_dir, to, real(from_dir, from, to_dir, to, flags));
}

static int removed(int dirfd, const char *path, int result)
{
	char whole[PATH_MAX];
	int saved = errno;
	if (!result && resolve(dirfd, path, whole))
		put(REMOVE, 0, 0, whole, strlen(whole));
	errno = saved;
	return result;
}

int unlink(const char *path)
{
	REAL(unlink);
	return removed(AT_FDCWD, path, real(path));
}

int unlinkat(int dirfd, const char *path, int flags)
{
	REAL(unlinkat);
	return removed(dirfd, path, real(dirfd, path, flags));
}

int remove(const char *path)
{
	REAL(remove);
	return removed(AT_FDCWD, path, real(path));
}

int rmdir(const char *path)
{
	REAL(rmdir);
	return removed(AT_FDCWD, path, real(path));
}

static int made(int dirfd, const char *path, int result)
{
	char whole[PATH_MAX];
	int saved = errno;
	if (!result && resolve(dirfd, path, whole))
		put(DIRECTORY, 0, 0, whole, strlen(whole));
	errno = saved;
	return result;
}

int mkdir(const char *path, mode_t mode)
{
	REAL(mkdir);
	if (refused_name(AT_FDCWD, path))
		return -1;
	return made(AT_FDCWD, path, real(path, mode));
}

int mkdirat(int dirfd, const char *path, mode_t mode)
{
	REAL(mkdirat);
	return made(dirfd, path, real(dirfd, path, mode));
}

ssize_t copy_file_range(int in, off64_t *in_offset, int out, off64_t *out_offset, size_t length, unsigned flags)
{
	(void)in, (void)in_offset, (void)out, (void)out_offset, (void)length, (void)flags;
	errno = ENOSYS;
	return -1;
}

#define SENDFILE(name) \
	ssize_t name(int out, int in, off64_t *offset, size_t length) \
	{ \
		(void)out, (void)in, (void)offset, (void)length; \
		errno = ENOSYS; \
		return -1; \
	}
SENDFILE(sendfile)
SENDFILE(sendfile64)

ssize_t splice(int in, off64_t *in_offset, int out, off64_t *out_offset, size_t length, unsigned flags)
{
	(void)in, (void)in_offset, (void)out, (void)out_offset, (void)length, (void)flags;
	errno = EINVAL;
	return -1;
}
