// Tests that a worker and its children die with the worker's owner, even if the worker is stuck in native code.
#include "check.hpp"
#include "os/platform.hpp"
#include "os/worker_threads.hpp"
#include "random.hpp"

#if REMUDA_LINUX

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <set>

using namespace remuda;

namespace {

constexpr unsigned kLongest = 60;  // in seconds; ends the processes that a broken lifeline would leave running

int pidfd_of(pid_t pid) { return static_cast<int>(syscall(SYS_pidfd_open, pid, 0)); }

pid_t start(void (*run)(int), int argument) {
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid != 0) return pid;
  run(argument);
  _exit(0);
}

void tell(int pipe, pid_t pid) { CHECK_EQ(write(pipe, &pid, sizeof pid), static_cast<ssize_t>(sizeof pid)); }

pid_t hear(int pipe) {
  pid_t pid = -1;
  CHECK_EQ(read(pipe, &pid, sizeof pid), static_cast<ssize_t>(sizeof pid));
  return pid;
}

void simulator(int pipe) {
  alarm(kLongest);
  tell(pipe, getpid());
  while (true) pause();
}

void worker(int pipe) {
  alarm(kLongest);
  setpgid(0, 0);
  tie_life_to(pidfd_of(getppid()));
  start(simulator, pipe);
  tell(pipe, getpid());
  while (true) idle(1000);  // stuck
}

void owner(int pipe) {
  start(worker, pipe);
  while (true) pause();
}

}  // namespace

TEST(a_worker_and_its_children_die_with_their_owner) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);  // makes this process the parent of orphans, so that it can read their exit codes
  int ends[2];
  CHECK_EQ(pipe(ends), 0);
  pid_t owner_pid = start(owner, ends[1]);
  const std::set<pid_t> orphans = {hear(ends[0]), hear(ends[0])};
  kill(owner_pid, SIGKILL);
  CHECK_EQ(waitpid(owner_pid, nullptr, 0), owner_pid);
  std::set<pid_t> ended;
  while (ended.size() < 2) {
    int status = -1;
    ended.insert(waitpid(-1, &status, 0));
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  }
  CHECK(ended == orphans);
}

#else

TEST(elsewhere_there_is_no_life_to_tie) { remuda::tie_life_to(-1); }

#endif
