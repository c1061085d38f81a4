#include "os/signals.hpp"

#if REMUDA_LINUX
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <system_error>

namespace remuda {

namespace {

using Handler = void (*)(int);

// Set before the handler is installed, because the handler must be async-signal-safe.
pid_t owner_pid = 0, own_pid = 0;
std::array<char, 32> stat_of_owner{};
std::array<Handler, 32> earlier{};  // By number: the handler that the signal had before.

// Returns whether the owner blocks, ignores or catches the signal. These are the fields 32 to 34 of its `stat`, as
// decimal bit masks of the first 31 signals. The last ")" ends the second field, which may have blanks.
bool owner_survives(int number) {
  const int fd = open(stat_of_owner.data(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  std::array<char, 2048> text{};
  const ssize_t length = read(fd, text.data(), text.size() - 1);
  close(fd);
  if (length <= 0) return false;
  const char* at = strrchr(text.data(), ')');
  for (int field = 2; at != nullptr && field < 34; ++field) {
    at = strchr(at + 1, ' ');
    if (at != nullptr && field >= 31 && (strtoul(at, nullptr, 10) >> (number - 1) & 1) != 0) return true;
  }
  return false;
}

void on_signal(int number, siginfo_t* info, void*) {
  const int error = errno;
  const bool is_sent = info->si_code <= 0;  // by a process; otherwise by the kernel
  const bool is_meant = is_sent && (info->si_pid == owner_pid || info->si_pid == own_pid);
  if (is_meant || getpid() != own_pid || !owner_survives(number)) {
    const Handler handler = earlier[static_cast<std::size_t>(number)];
    if (handler == SIG_DFL) {
      signal(number, SIG_DFL);
      raise(number);  // The signal is blocked until this handler returns.
    } else {
      handler(number);
    }
  }
  errno = error;
}

void stop(int) {
  const int error = errno;
  kill(getpid(), SIGSTOP);
  errno = error;
}

}  // namespace

const std::vector<int>& job_signals() {
  static const std::vector<int> numbers{SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGTERM, SIGXCPU};
  return numbers;
}

void follow_signals(int owner) {
  owner_pid = owner;
  own_pid = getpid();
  std::snprintf(stat_of_owner.data(), stat_of_owner.size(), "/proc/%d/stat", owner);
  for (const int number : job_signals()) {
    struct sigaction action{};
    sigaction(number, nullptr, &action);
    if (number == SIGHUP && action.sa_handler == SIG_IGN) continue;
    earlier[static_cast<std::size_t>(number)] = action.sa_handler;
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
    sigaction(number, &action, nullptr);
  }
}

void stop_at(int number) {
  struct sigaction action{};
  action.sa_handler = stop;
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  if (sigaction(number, &action, nullptr) != 0)
    throw std::system_error(errno, std::generic_category(), "could not handle a signal");
}

}  // namespace remuda

#endif
