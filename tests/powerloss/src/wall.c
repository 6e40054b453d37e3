/* Preloaded into a process, this adds the seconds in the file SPUR_WALL to its wall-clock time. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static time_t added(void)
{
	const char *path = getenv("SPUR_WALL");
	char text[32] = "";
	int saved = errno;
	int fd = path ? (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC) : -1;
	if (fd >= 0) {
		long length = syscall(SYS_read, fd, text, sizeof text - 1);
		text[length > 0 ? length : 0] = 0;
		syscall(SYS_close, fd);
	}
	errno = saved;
	return (time_t)strtoll(text, NULL, 10);
}

int clock_gettime(clockid_t id, struct timespec *time)
{
	static int (*real)(clockid_t, struct timespec *);
	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "clock_gettime");
	int result = real(id, time);
	if (!result && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
		time->tv_sec += added();
	return result;
}
