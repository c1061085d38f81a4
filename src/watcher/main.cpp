// remuda-watcher KEY: waits until its owner, the process that started it, ends or execs another program, however that
// happens. Then it kills all processes with KEY in their environment, and ends.
//
// It is a separate program in a session of its own. So signals that stop or kill the workers or their owner do not
// reach it, and it keeps none of the owner's memory in use. It is not a child of its owner, because the owner may wait
// for all of its children.
//
// Its standard input is a file on which its owner holds a record lock at byte 0. Forked copies of the owner do not
// inherit such a lock. The lock is released when the owner ends or closes the file, as every exec of another program
// does. The watcher locks byte 1, which shows the owner that the watcher runs. If the system allows no more processes,
// the exit code is EAGAIN.
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "os/process_tree.hpp"

namespace {

constexpr int kFile = STDIN_FILENO;

bool lock(int command, off_t byte) {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = byte;
  lock.l_len = 1;
  int result;
  do {
    result = fcntl(kFile, command, &lock);
  } while (result != 0 && errno == EINTR);
  return result == 0;
}

// Waits for the byte that the watcher writes when it is ready. Returns the exit code of this process: 0 if the byte
// came.
int await_start(int pipe) {
  char byte;
  ssize_t count;
  do {
    count = read(pipe, &byte, 1);
  } while (count < 0 && errno == EINTR);
  return count == 1 ? 0 : 1;
}

// Closes the descriptors that were inherited from the owner, such as a pipe with a reader that waits for the last
// writer.
void close_inherited() {
  DIR* list = opendir("/proc/self/fd");
  if (list == nullptr) return;
  while (const dirent* entry = readdir(list)) {
    const int fd = std::atoi(entry->d_name);  // atoi returns 0 for "." and ".."
    if (fd > STDERR_FILENO && fd != dirfd(list)) close(fd);
  }
  closedir(list);
}

int watch(const char* key, int ready) {
  setsid();
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  prctl(PR_SET_NAME, "remuda-watcher");
  if (chdir("/") != 0 || !lock(F_SETLK, 1) || write(ready, "", 1) != 1) return 1;
  close(ready);
  if (!lock(F_SETLKW, 0)) return 1;
  remuda::kill_process_tree({key}, 0);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "expected KEY and a file as standard input: remuda starts this program itself\n");
    return 2;
  }
  close_inherited();
  int ready[2];
  if (pipe2(ready, O_CLOEXEC) != 0) return 1;
  const pid_t pid = fork();
  if (pid < 0) return errno;
  if (pid == 0) return watch(argv[1], ready[1]);
  close(ready[1]);
  return await_start(ready[0]);
}
