#include "os/process_group.hpp"

#include "os/platform.hpp"

#if REMUDA_LINUX

#include <signal.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <thread>

namespace remuda {

namespace {

// These constants are newer than the headers of many systems.
constexpr unsigned kSignalProcessGroup = 1u << 2;      // PIDFD_SIGNAL_PROCESS_GROUP
constexpr idtype_t kPidfd = static_cast<idtype_t>(3);  // P_PIDFD

struct PidfdInfo {  // struct pidfd_info in its first version
  std::uint64_t mask;
  std::uint64_t cgroup;
  std::uint32_t ids[11];
  std::int32_t exit_status;
};
static_assert(sizeof(PidfdInfo) == 64);
constexpr std::uint64_t kExitInfo = 1u << 3;  // PIDFD_INFO_EXIT

int send(int pidfd, int number, unsigned flags = 0) {
  return static_cast<int>(syscall(SYS_pidfd_send_signal, pidfd, number, nullptr, flags));
}

// Whether the process runs or its exit code has not been taken, so that no other process has its pid.
bool keeps_its_pid(int pidfd) { return send(pidfd, 0) == 0 || errno == EPERM; }

bool leads_its_group(int pidfd, int pid) { return keeps_its_pid(pidfd) && getpgid(pid) == pid; }

int code_of(const siginfo_t& end) { return end.si_code == CLD_EXITED ? end.si_status : -end.si_status; }

}  // namespace

void signal_group(int pidfd, int pid, int number) {
  if (send(pidfd, number, kSignalProcessGroup) != 0 && errno == EINVAL) {
    return signal_group_by_number(pidfd, pid, number);
  }
  if (!leads_its_group(pidfd, pid)) send(pidfd, number);
}

void signal_group_by_number(int pidfd, int pid, int number) {
  if (!leads_its_group(pidfd, pid)) send(pidfd, number);
  if (keeps_its_pid(pidfd)) killpg(pid, number);
}

std::optional<int> reap_group(int pidfd, int pid, int patience_ms) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(patience_ms);
  std::optional<int> code;
  siginfo_t end{};
  // Reads the exit code without taking it, because the process's pid reserves the number of the group.
  if (waitid(kPidfd, static_cast<id_t>(pidfd), &end, WEXITED | WNOHANG | WNOWAIT) == 0 && end.si_pid != 0) {
    code = code_of(end);
  }
  // Any member of the group that is not reaped yet reserves its number, even after the leader.
  bool more = keeps_its_pid(pidfd);
  while (more) {
    end = {};
    more = waitid(P_PGID, static_cast<id_t>(pid), &end, WEXITED | WNOHANG) == 0;
    if (!more || end.si_pid != 0) continue;
    more = std::chrono::steady_clock::now() < deadline;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  end = {};
  waitid(kPidfd, static_cast<id_t>(pidfd), &end, WEXITED | WNOHANG);  // if it had left its group
  return code;
}

std::optional<int> exit_code_of(int pidfd) {
  PidfdInfo info{};
  info.mask = kExitInfo;
  if (ioctl(pidfd, _IOWR(0xFF, 11, PidfdInfo), &info) != 0 || (info.mask & kExitInfo) == 0) return {};
  return WIFSIGNALED(info.exit_status) ? -WTERMSIG(info.exit_status) : WEXITSTATUS(info.exit_status);
}

}  // namespace remuda

#else

namespace remuda {
void signal_group(int, int, int) {}
void signal_group_by_number(int, int, int) {}
std::optional<int> reap_group(int, int, int) { return {}; }
std::optional<int> exit_code_of(int) { return {}; }
}  // namespace remuda

#endif
