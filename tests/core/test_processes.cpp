// Tests that signals reach a process and its group, and every process with a key, even outside its group, but no other
// process, even one that has the pid now.
#include "check.hpp"
#include "os/platform.hpp"
#include "os/process_group.hpp"
#include "os/process_tree.hpp"

#if REMUDA_LINUX

#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <set>
#include <string>

using namespace remuda;

namespace {

// Keys that no other run of this test uses at the same time.
const std::string own = std::to_string(getpid());
const std::string mine = "mine" + own, other = "else" + own;

constexpr unsigned kLongest = 60;  // in seconds; ends the processes that a missing signal would leave running

int pidfd_of(pid_t pid) { return static_cast<int>(syscall(SYS_pidfd_open, pid, 0)); }

[[noreturn]] void wait_for_ever() {
  alarm(kLongest);
  while (true) pause();
}

// Starts a process that waits, in this group; 0: in a new group, which it leads.
pid_t start_in(pid_t group = 0) {
  const pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) wait_for_ever();
  CHECK_EQ(setpgid(pid, group), 0);
  return pid;
}

// Execs a program that waits, with this variable in its environment. The exec closes the process's end of the `Pipe`.
[[noreturn]] void become_sleeper(const std::string& variable) {
  alarm(kLongest);  // the alarm outlives the exec
  char* const arguments[] = {const_cast<char*>("sleep"), const_cast<char*>("100000"), nullptr};
  const std::string misleading = "AFTER=" + std::string(kFamilyVariable) + "=" + mine;
  char* const environment[] = {const_cast<char*>("BEFORE=1"), const_cast<char*>(variable.c_str()),
                               const_cast<char*>(misleading.c_str()), nullptr};
  execve("/bin/sleep", arguments, environment);
  _exit(127);
}

// A pipe to wait until all children have exec'd: each exec closes the child's end.
struct Pipe {
  Pipe() { CHECK_EQ(pipe2(ends, O_CLOEXEC), 0); }
  ~Pipe() { close(ends[0]); }
  void await_execs() {
    close(ends[1]);
    char byte;
    while (read(ends[0], &byte, 1) > 0) {
    }
  }
  int ends[2];
};

pid_t start(const std::string& variable, bool own_session = false) {
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid != 0) return pid;
  if (own_session) setsid();
  become_sleeper(variable);
}

bool was_killed(pid_t pid) {
  int status = -1;
  CHECK_EQ(waitpid(pid, &status, 0), pid);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

// Returns whether the child was reaped, as `kill_process_tree` does for children of its caller.
bool was_reaped(pid_t pid) { return waitpid(pid, nullptr, 0) < 0 && errno == ECHILD; }

// Ends a process that ran until now.
void end(pid_t pid) {
  CHECK_EQ(waitpid(pid, nullptr, WNOHANG), 0);
  kill(pid, SIGKILL);
  CHECK(was_killed(pid));
}

}  // namespace

TEST(the_leader_and_its_group_are_signalled) {
  for (bool has_left : {false, true}) {
    const pid_t other = start_in(), leader = start_in(), member = start_in(leader);
    if (has_left) CHECK_EQ(setpgid(leader, other), 0);
    const int pidfd = pidfd_of(leader);
    signal_group(pidfd, leader, SIGKILL);
    CHECK(was_killed(leader) && was_killed(member));
    end(other);
    close(pidfd);
  }
}

TEST(a_pid_that_is_anothers_by_now_is_not_signalled) {
  const pid_t gone = start_in(), bystander = start_in();
  const int pidfd = pidfd_of(gone);
  kill(gone, SIGKILL);
  CHECK(was_killed(gone));
  signal_group(pidfd, bystander, SIGKILL);
  CHECK(!reap_group(pidfd, bystander, 0));
  end(bystander);
  close(pidfd);
}

TEST(who_carries_a_key_is_killed_and_nobody_else) {
  Pipe pipe;
  const std::string variable = std::string(kFamilyVariable) + "=";
  const std::set<pid_t> family = {start(variable + mine), start(variable + mine, true),
                                  start(variable + "outer:" + mine), start(variable + mine + ":inner"),
                                  start(variable + other)};
  const std::set<pid_t> strangers = {
      start(variable + mine.substr(1)), start(variable + mine + "r"),          start(variable),
      start("X" + variable + mine),     start(variable + "x:" + mine + "2:y"), start("")};
  pipe.await_execs();
  CHECK(kill_process_tree({mine, other}, 10'000).survivors.empty());
  for (pid_t pid : family) CHECK(was_reaped(pid));
  for (pid_t pid : strangers) end(pid);
}

// Two chains of 5000 shells. Each shell starts the next one and execs `true`. A chain writes a line after a few shells,
// and another if its last shell was not killed.
constexpr char kRunners[] =
    "export left=5000; export run='left=$((left - 1)); case $left in 4995 | 0) echo; esac; "
    "[ $left -gt 0 ] && sh -c \"$run\" & exec true'; "
    "sh -c \"$run\" & sh -c \"$run\" & exec true";

// A sanitizer slows the search, but not the shells, so the search takes longer to catch them.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kRounds = 1;
#else
constexpr int kRounds = 10;
#endif

// At every moment, some process of this family is forking or in an exec.
TEST(a_family_on_the_run_is_caught) {
  CHECK(take_in_orphans());
  // the kernel reaps the children at once, because thousands of zombies would slow the search
  signal(SIGCHLD, SIG_IGN);
  const std::string variable = std::string(kFamilyVariable) + "=" + mine;
  for (int round = 0; round < kRounds; ++round) {
    Pipe pipe;
    const pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
      dup2(pipe.ends[1], STDOUT_FILENO);
      char* const arguments[] = {const_cast<char*>("sh"), const_cast<char*>("-c"), const_cast<char*>(kRunners),
                                 nullptr};
      char* const environment[] = {const_cast<char*>(variable.c_str()), const_cast<char*>("PATH=/usr/bin:/bin"),
                                   nullptr};
      execve("/bin/sh", arguments, environment);
      _exit(127);
    }
    close(pipe.ends[1]);
    char lines[2];
    for (char& line : lines) CHECK_EQ(read(pipe.ends[0], &line, 1), 1);
    CHECK(kill_process_tree({mine}, 10'000).survivors.empty());
    CHECK_EQ(read(pipe.ends[0], lines, 1), 0);  // the pipe ends once no process holds its other end
  }
  signal(SIGCHLD, SIG_DFL);
}

#endif
