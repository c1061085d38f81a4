// Tests that signals reach, and exit codes come from, the process of the descriptor, even if another process has its
// pid now.
#include "check.hpp"
#include "os/platform.hpp"
#include "os/process_group.hpp"

#if REMUDA_LINUX

#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <initializer_list>

using namespace remuda;

namespace {

constexpr unsigned kLongest = 60;  // in seconds; ends the processes that a missing signal would leave running
constexpr int kPatience = 10'000;  // in milliseconds; the time for killed processes to end

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

constexpr auto kWays = {signal_group, signal_group_by_number};

}  // namespace

TEST(the_leader_and_its_group_are_signalled) {
  for (auto* signal : kWays) {
    const pid_t leader = start(), member = start(leader), stranger = start();
    const int pidfd = pidfd_of(leader);
    signal(pidfd, leader, SIGKILL);
    CHECK(was_killed(leader) && was_killed(member) && runs(stranger));
    kill(stranger, SIGKILL);
    CHECK(was_killed(stranger));
    close(pidfd);
  }
}

TEST(who_has_left_his_group_is_signalled_with_it) {
  for (auto* signal : kWays) {
    const pid_t other = start(), leader = start(), member = start(leader);
    CHECK_EQ(setpgid(leader, other), 0);
    const int pidfd = pidfd_of(leader);
    signal(pidfd, leader, SIGKILL);
    CHECK(was_killed(leader) && was_killed(member) && runs(other));
    kill(other, SIGKILL);
    CHECK(was_killed(other));
    close(pidfd);
  }
}

TEST(a_pid_that_is_anothers_by_now_is_not_signalled) {
  for (auto* signal : kWays) {
    const pid_t gone = start(), bystander = start();
    const int pidfd = pidfd_of(gone);
    kill(gone, SIGKILL);
    CHECK(was_killed(gone));
    signal(pidfd, bystander, SIGKILL);
    CHECK(!reap_group(pidfd, bystander, 0));
    CHECK(runs(bystander));
    kill(bystander, SIGKILL);
    CHECK(was_killed(bystander));
    close(pidfd);
  }
}

TEST(orphans_of_the_group_are_reaped_with_it) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);  // orphans become its children, as those of a container's first process do
  const pid_t leader = start(), other = start();
  const pid_t members[] = {start(leader), start(leader)};
  const int pidfd = pidfd_of(leader);
  signal_group(pidfd, leader, SIGKILL);
  siginfo_t end;
  CHECK_EQ(waitid(P_PID, static_cast<id_t>(leader), &end, WEXITED | WNOWAIT), 0);
  CHECK(reap_group(pidfd, leader, kPatience) == -SIGKILL);
  for (pid_t pid : {leader, members[0], members[1]}) CHECK(waitpid(pid, nullptr, 0) < 0 && errno == ECHILD);
  CHECK(runs(other));
  kill(other, SIGKILL);
  CHECK(was_killed(other));
  close(pidfd);
}

TEST(exit_codes_are_told) {
  const pid_t pid = fork();
  if (pid == 0) _exit(7);
  const int pidfd = pidfd_of(pid);
  siginfo_t end;
  CHECK_EQ(waitid(P_PID, static_cast<id_t>(pid), &end, WEXITED | WNOWAIT), 0);
  CHECK(reap_group(pidfd, pid, kPatience) == 7);
  CHECK(!reap_group(pidfd, pid, kPatience));
  close(pidfd);
}

TEST(an_exit_code_that_nobody_took_is_known_where_the_kernel_keeps_it) {
  signal(SIGCHLD, SIG_IGN);
  for (const int number : {0, SIGQUIT}) {  // SIGQUIT dumps core, and no sanitizer catches it
    const pid_t pid = fork();
    if (pid == 0) {
      if (number == 0) _exit(7);
      wait_for_ever();
    }
    const int pidfd = pidfd_of(pid);
    if (number != 0) kill(pid, number);
    CHECK(waitpid(pid, nullptr, 0) < 0 && errno == ECHILD);  // waits until all children have ended
    CHECK(!reap_group(pidfd, pid, 0));
    const auto code = exit_code_of(pidfd);
    CHECK(!code || *code == (number == 0 ? 7 : -number));
    close(pidfd);
  }
  signal(SIGCHLD, SIG_DFL);
}

#else

TEST(elsewhere_nobody_is_signalled) {
  remuda::signal_group(-1, 0, 0);
  remuda::signal_group_by_number(-1, 0, 0);
  CHECK(!remuda::reap_group(-1, 0, 0));
  CHECK(!remuda::exit_code_of(-1));
}

#endif
