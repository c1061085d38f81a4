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

constexpr idtype_t kPidfd = static_cast<idtype_t>(3);  // P_PIDFD, which the headers of many systems lack

struct PidfdInfo {  // the first version of the kernel's struct pidfd_info
  std::uint64_t mask;
  std::uint64_t cgroup;
  std::uint32_t ids[11];
  std::int32_t exit_status;
};
static_assert(sizeof(PidfdInfo) == 64);
constexpr std::uint64_t kExitInfo = 1u << 3;  // PIDFD_INFO_EXIT

int send(int pidfd, int number) { return static_cast<int>(syscall(SYS_pidfd_send_signal, pidfd, number, nullptr, 0)); }

// Returns whether the process still has its pid: it runs, or it has ended but its exit code was not taken. Until then,
// no other process can get the pid.
bool keeps_its_pid(int pidfd) { return send(pidfd, 0) == 0 || errno == EPERM; }

int code_of(const siginfo_t& end) { return end.si_code == CLD_EXITED ? end.si_status : -end.si_status; }

}  // namespace

void signal_group(int pidfd, int pid, int number) {
  if (!keeps_its_pid(pidfd)) return;
  const bool is_elsewhere = getpgid(pid) != pid;
  killpg(pid, number);
  if (is_elsewhere) send(pidfd, number);
}

std::optional<int> reap_group(int pidfd, int pid, int patience_ms) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(patience_ms);
  std::optional<int> code;
  siginfo_t end{};
  // Reads the exit code without taking it: as long as the process has its pid, no other group can get the number of its
  // group.
  if (waitid(kPidfd, static_cast<id_t>(pidfd), &end, WEXITED | WNOHANG | WNOWAIT) == 0 && end.si_pid != 0)
    code = code_of(end);
  // Any process of the group that is not reaped yet reserves the group's number, even after the leader was reaped.
  bool more = keeps_its_pid(pidfd);
  while (more) {
    end = {};
    more = waitid(P_PGID, static_cast<id_t>(pid), &end, WEXITED | WNOHANG) == 0;
    if (!more || end.si_pid != 0) continue;
    more = std::chrono::steady_clock::now() < deadline;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  end = {};
  waitid(kPidfd, static_cast<id_t>(pidfd), &end, WEXITED | WNOHANG);  // reaps the process if it has left its group
  return code;
}

std::optional<int> exit_code_of(int pidfd) {
  PidfdInfo info{};
  info.mask = kExitInfo;
  if (ioctl(pidfd, _IOWR(0xFF, 11, PidfdInfo), &info) != 0 || (info.mask & kExitInfo) == 0) return {};
  return WIFSIGNALED(info.exit_status) ? -WTERMSIG(info.exit_status) : WEXITSTATUS(info.exit_status);
}

}  // namespace remuda

#endif
