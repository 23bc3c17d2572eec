/* Makes fsync and fdatasync fail with EIO while the file named by SYNC_FAULT_WHILE exists. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static int broken(void) {
  const char *path = getenv("SYNC_FAULT_WHILE");
  return path && access(path, F_OK) == 0;
}

static int sync_or_fail(const char *name, int fd) {
  if (broken()) {
    errno = EIO;
    return -1;
  }
  int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
  return real(fd);
}

int fsync(int fd) { return sync_or_fail("fsync", fd); }
int fdatasync(int fd) { return sync_or_fail("fdatasync", fd); }
