// Tests that signals reach the process of the descriptor, even if another process has its pid now.
#include "check.hpp"
#include "os/platform.hpp"
#include "os/process_group.hpp"

#if REMUDA_LINUX

#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace remuda;

namespace {

constexpr unsigned kLongest = 60;  // in seconds; ends the processes that a missing signal would leave running

int pidfd_of(pid_t pid) { return static_cast<int>(syscall(SYS_pidfd_open, pid, 0)); }

[[noreturn]] void wait_for_ever() {
  alarm(kLongest);
  while (true) pause();
}

// Starts a process that waits, in this group; 0: in a new group, which it leads.
pid_t start(pid_t group = 0) {
  const pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) wait_for_ever();
  CHECK_EQ(setpgid(pid, group), 0);
  return pid;
}

bool was_killed(pid_t pid) {
  int status = -1;
  CHECK_EQ(waitpid(pid, &status, 0), pid);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

bool runs(pid_t pid) { return waitpid(pid, nullptr, WNOHANG) == 0; }

}  // namespace

TEST(the_leader_and_its_group_are_signalled) {
  for (bool has_left : {false, true}) {
    const pid_t other = start(), leader = start(), member = start(leader);
    if (has_left) CHECK_EQ(setpgid(leader, other), 0);
    const int pidfd = pidfd_of(leader);
    signal_group(pidfd, leader, SIGKILL);
    CHECK(was_killed(leader) && was_killed(member) && runs(other));
    kill(other, SIGKILL);
    CHECK(was_killed(other));
    close(pidfd);
  }
}

TEST(a_pid_that_is_anothers_by_now_is_not_signalled) {
  const pid_t gone = start(), bystander = start();
  const int pidfd = pidfd_of(gone);
  kill(gone, SIGKILL);
  CHECK(was_killed(gone));
  signal_group(pidfd, bystander, SIGKILL);
  CHECK(!reap_group(pidfd, bystander, 0));
  CHECK(runs(bystander));
  kill(bystander, SIGKILL);
  CHECK(was_killed(bystander));
  close(pidfd);
}

#endif
