/* While the file named by SYNC_FAULT_WHILE exists, fsync and fdatasync fail with EIO. While the one named
   by DISK_FULL_WHILE exists, there is no room for any write to a file. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static int while_exists(const char *variable) {
  const char *path = getenv(variable);
  return path && access(path, F_OK) == 0;
}

static int sync_or_fail(const char *name, int fd) {
  if (while_exists("SYNC_FAULT_WHILE")) {
    errno = EIO;
    return -1;
  }
  int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
  return real(fd);
}

int fsync(int fd) { return sync_or_fail("fsync", fd); }
int fdatasync(int fd) { return sync_or_fail("fdatasync", fd); }

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t at) {
  if (while_exists("DISK_FULL_WHILE")) {
    errno = ENOSPC;
    return -1;
  }
  ssize_t (*real)(int, const void *, size_t, off64_t) =
      (ssize_t (*)(int, const void *, size_t, off64_t))dlsym(RTLD_NEXT, "pwrite64");
  return real(fd, bytes, count, at);
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at) {
  return pwrite64(fd, bytes, count, at);
}
