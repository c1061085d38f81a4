// A child process that runs one instruction at a time. After each instruction, a test can check the shared memory: its
// content is what a SIGKILL at this instruction would leave.
#pragma once

#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <limits>
#include <string>
#include <thread>
#include <utility>

#include "check.hpp"

class Stepped {
 public:
  enum class State { kStopped, kAsleep, kEnded };

  // Starts the child, which calls `body` and ends. `may_sleep`: returns whether the child may sleep in the kernel next.
  template <class Body>
  explicit Stepped(Body body, std::function<bool()> may_sleep = nullptr)
      : may_sleep_(may_sleep ? std::move(may_sleep) : [] { return false; }), pid_(fork()) {
    CHECK(pid_ >= 0);
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(1);
      raise(SIGSTOP);
      body();
      _exit(0);
    }
    wait_for_stop();
  }
  ~Stepped() {
    if (state_ == State::kEnded) return;
    kill(pid_, SIGKILL);
    int status = -1;
    while (waitpid(pid_, &status, 0) == pid_ && !WIFSIGNALED(status)) {
    }
  }

  // Runs the next instruction, until it ends or sleeps in the kernel.
  State step() {
    CHECK(state_ == State::kStopped);
    CHECK_EQ(ptrace(PTRACE_SINGLESTEP, pid_, nullptr, nullptr), 0);
    wait_for_stop();
    return state_;
  }
  State steps(int count) {
    while (count-- > 0 && state_ == State::kStopped) step();
    return state_;
  }
  // Lets the child run until it sleeps in the kernel, or ends.
  void run_until_asleep() {
    CHECK_EQ(ptrace(PTRACE_CONT, pid_, nullptr, nullptr), 0);
    wait_for_stop();
  }
  // Lets the child run until it ends.
  void finish() {
    while (state_ != State::kEnded) {
      if (state_ == State::kStopped) CHECK_EQ(ptrace(PTRACE_CONT, pid_, nullptr, nullptr), 0);
      int status = -1;
      CHECK_EQ(waitpid(pid_, &status, 0), pid_);
      note(status);
    }
  }

  // Returns whether the system allows this process to trace another one.
  static bool is_possible() {
    stay_on_one_core();
    pid_t pid = fork();
    if (pid == 0) _exit(ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) == 0 ? 0 : 1);
    int status = -1;
    waitpid(pid, &status, 0);
    if (status != 0) std::printf("  skipped: ptrace is not allowed here\n");
    return status == 0;
  }

 private:
  void wait_for_stop() {
    int status = -1;
    pid_t reported = 0;
    while ((reported = waitpid(pid_, &status, may_sleep_() ? WNOHANG : 0)) == 0) {
      if (sleeps()) {
        state_ = State::kAsleep;
        return;
      }
      std::this_thread::yield();
    }
    CHECK_EQ(reported, pid_);
    note(status);
  }
  // If the child has ended, its exit code must be 0.
  void note(int status) {
    state_ = WIFSTOPPED(status) ? State::kStopped : State::kEnded;
    if (state_ == State::kEnded) CHECK_EQ(status, 0);
  }
  bool sleeps() const {
    std::ifstream stat("/proc/" + std::to_string(pid_) + "/stat");
    stat.ignore(std::numeric_limits<std::streamsize>::max(), ')');
    char space = 0, state = 0;
    stat.get(space).get(state);
    return state == 'S';
  }

  // Binds this process to one core. The parent and the child take turns, which is ten times as fast on one core.
  static void stay_on_one_core() {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one);
  }

  std::function<bool()> may_sleep_;
  pid_t pid_;
  State state_ = State::kStopped;
};

// Calls `attempt(n)` with n = 0, 1, 2, ... until it returns true. With sanitizers a function has thousands of
// instructions; then n skips most numbers.
template <class Attempt>
void at_every_instruction(Attempt attempt) {
  int last = 1;
  while (!attempt(last)) last *= 2;
  const int by = last <= 1024 ? 1 : last / 24;
  for (int i = 0; !attempt(i); i += by) {
  }
}
