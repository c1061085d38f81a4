#include "os/process_tree.hpp"

#include "os/descriptor.hpp"
#include "os/platform.hpp"

#if REMUDA_LINUX

#include <dirent.h>
#include <fcntl.h>
#include <linux/prctl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <thread>
#include <unordered_set>
#include <utility>

namespace remuda {

namespace {

using Clock = std::chrono::steady_clock;

// How often the search returns to processes that are in the middle of an exec, a millisecond apart.
constexpr int kMaxSecondLooks = 50;
// The word of /proc/<pid>/stat with the start of the environment; the next word is its end.
constexpr int kEnvStart = 50;

// Reads files of /proc, one at a time, into the same memory.
class ProcReader {
 public:
  // Returns the file's content, valid until the next call; nullopt if it could not be opened or read, because of
  // missing rights or because the process has ended.
  std::optional<std::string_view> read(const Descriptor& file) {
    if (file < 0) return {};
    std::size_t length = 0;
    while (true) {
      if (length == memory_.size()) memory_.resize(2 * length);
      const ssize_t count = ::read(file, memory_.data() + length, memory_.size() - length);
      if (count < 0) return {};
      if (count == 0) return std::string_view(memory_.data(), length);
      length += static_cast<std::size_t>(count);
    }
  }

 private:
  std::vector<char> memory_ = std::vector<char>(1 << 16);
};

// Returns the value of kFamilyVariable in an environment in the format of /proc; empty if it is not set.
std::string_view keys_in(std::string_view environment) {
  const std::string_view name(kFamilyVariable);
  while (!environment.empty()) {
    const std::string_view entry = environment.substr(0, environment.find('\0'));
    if (entry.size() > name.size() && entry[name.size()] == '=' && entry.substr(0, name.size()) == name) {
      return entry.substr(name.size() + 1);
    }
    environment.remove_prefix(std::min(entry.size() + 1, environment.size()));
  }
  return {};
}

// Returns the words of /proc/<pid>/stat from number `first` on, counted from 1. The second word may contain blanks.
std::string_view stat_from(std::string_view stat, int first) {
  stat.remove_prefix(std::min(stat.size(), stat.rfind(')') + 2));
  for (int word = 3; word < first && !stat.empty(); ++word) {
    stat.remove_prefix(std::min(stat.size(), stat.find(' ') + 1));
  }
  return stat;
}

std::uint64_t number_in(std::string_view stat, int word) {
  return std::strtoull(std::string(stat_from(stat, word).substr(0, 20)).c_str(), nullptr, 10);
}

// Whether /proc uses the pids of this process's namespace. It may be missing, or belong to another container.
bool proc_is_ours() {
  char self[16] = {};
  const ssize_t length = readlink("/proc/self", self, sizeof self);
  return length > 0 && std::string_view(self, static_cast<std::size_t>(length)) == std::to_string(getpid());
}

class Hunt {
 public:
  Hunt(const std::vector<std::string>& keys, int patience_ms)
      : keys_(keys.begin(), keys.end()), patience_(patience_ms) {}

  void run() {
    if (!proc_is_ours()) {
      problem_ = ENOENT;
      return;
    }
    int second_looks = 0;
    while (true) {
      const int before = last_pid();
      const Found found = pass(before);
      // After the pids wrap around, a new process may have a pid that this pass has already checked.
      if (found.somebody || last_pid() < before) {
        second_looks = 0;
        continue;
      }
      if (!found.unsure || ++second_looks > kMaxSecondLooks) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  // Waits for the end of the killed processes, then reaps those that are children of this process. They are reaped
  // last, because an orphan becomes a child of this process only after its parent has ended.
  HuntResult result() {
    const auto deadline = Clock::now() + patience_;
    HuntResult result{{lost_.begin(), lost_.end()}, problem_, spent_};
    for (const auto& [pid, pidfd] : shot_) {
      if (!ends_until(deadline, pidfd)) result.survivors.push_back(pid);
    }
    for (const auto& [pid, pidfd] : shot_) reap(pidfd);
    return result;
  }

 private:
  struct Found {
    bool somebody = false;  // a new process, which may have forked others behind the search
    bool unsure = false;
  };
  enum class Sight { kStranger, kFamily, kBetweenPrograms };

  // Checks all processes once: those of a directory listing, which is as old as its first entry, and then those created
  // since. The pids of the latter are higher than `before`, the last pid assigned before the pass. A process that forks
  // runs ahead of the search, but more slowly than the search; and after a SIGKILL it forks no more.
  Found pass(int before) {
    Found found;
    const int fd = open_somehow([] { return open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
    std::unique_ptr<DIR, int (*)(DIR*)> all(fd < 0 ? nullptr : fdopendir(fd), closedir);
    if (all == nullptr) {
      problem_ = errno;
      return found;
    }
    while (const dirent* entry = readdir(all.get())) {
      int pid = 0;
      const char* end = entry->d_name + std::strlen(entry->d_name);
      if (std::from_chars(entry->d_name, end, pid).ptr == end) meet(pid, found);
    }
    int next = before + 1;
    for (int last = last_pid(); next <= last; last = last_pid()) {
      while (next <= last) meet(next++, found);
    }
    return found;
  }

  void meet(int pid, Found& found) {
    if (pid == self_) return;
    const Sight sight = look(pid);
    found.unsure |= sight == Sight::kBetweenPrograms;
    if (sight == Sight::kFamily) found.somebody |= shoot(pid);
  }

  Sight look(int pid) {
    const auto environment = read(pid, "environ");
    if (!environment) return Sight::kStranger;
    if (environment->empty()) return may_yet_show_one(pid) ? Sight::kBetweenPrograms : Sight::kStranger;
    for (std::string_view keys = keys_in(*environment); !keys.empty();) {
      const std::string_view key = keys.substr(0, keys.find(':'));
      if (keys_.count(std::string(key)) != 0) return Sight::kFamily;
      keys.remove_prefix(std::min(key.size() + 1, keys.size()));
    }
    return Sight::kStranger;
  }

  // Whether a process that shows no environment may show one soon. During an exec there is a moment when the old memory
  // is gone and the new environment is not in place yet. Kernel threads and dead processes have no memory and thus no
  // environment. A process with memory has no environment only if its environment has an address and is empty.
  bool may_yet_show_one(int pid) {
    const auto memory = read(pid, "statm");
    if (!memory || memory->substr(0, 2) == "0 ") return false;
    const auto stat = read(pid, "stat");
    if (!stat) return false;
    const auto [start, end] = std::pair(number_in(*stat, kEnvStart), number_in(*stat, kEnvStart + 1));
    return start == 0 || start != end;
  }

  // Kills a process. Returns whether it was a new one.
  bool shoot(int pid) {
    if (lost_.count(pid) != 0) return false;
    if (auto known = shot_.find(pid); known != shot_.end()) {
      if (!ends_until(Clock::now(), known->second)) return false;  // it is still dying
      reap(known->second);
      shot_.erase(known);  // a new process has the same pid
    }
    Descriptor pidfd(open_somehow([pid] { return static_cast<int>(syscall(SYS_pidfd_open, pid, 0)); }));
    // It has just ended: another pass looks for processes that it may have started.
    if (pidfd < 0) return errno == ESRCH;
    if (look(pid) != Sight::kFamily) return true;
    if (syscall(SYS_pidfd_send_signal, static_cast<int>(pidfd), SIGKILL, nullptr, 0) != 0) return errno == ESRCH;
    shot_.emplace(pid, std::move(pidfd));
    return true;
  }

  // The pid that was assigned last; 0 if it cannot be read.
  int last_pid() {
    const std::string_view load = read("/proc/loadavg").value_or("");
    return std::atoi(std::string(load.substr(load.rfind(' ') + 1)).c_str());
  }

  std::optional<std::string_view> read(int pid, const char* name) {
    return read("/proc/" + std::to_string(pid) + "/" + name);
  }

  std::optional<std::string_view> read(const std::string& path) {
    return proc_.read(Descriptor(open_somehow([&path] { return open(path.c_str(), O_RDONLY | O_CLOEXEC); })));
  }

  // Opens a file even if the process has no free descriptor.
  template <class Open>
  int open_somehow(Open open) {
    while (true) {
      const int fd = open();
      if (fd >= 0 || (errno != EMFILE && errno != ENFILE)) return fd;
      const int reason = errno;
      if (make_room()) continue;
      problem_ = errno = reason;
      return -1;
    }
  }

  // Frees a descriptor: first the reserve, then the descriptors of killed processes, one by one.
  bool make_room() {
    if (spend_reserve()) return spent_ = true;
    if (shot_.empty()) return false;
    const auto first = shot_.begin();
    if (ends_until(Clock::now() + patience_, first->second)) {
      reap(first->second);
    } else {
      lost_.insert(first->first);
    }
    shot_.erase(first);
    return true;
  }

  static bool ends_until(Clock::time_point deadline, int pidfd) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd fd{pidfd, POLLIN, 0};
    return poll(&fd, 1, std::max<int>(0, static_cast<int>(left))) > 0;
  }

  static void reap(int pidfd) {
    siginfo_t end;
    waitid(static_cast<idtype_t>(3 /* P_PIDFD */), static_cast<id_t>(pidfd), &end, WEXITED | WNOHANG);
  }

  const int self_ = getpid();
  const std::unordered_set<std::string> keys_;
  const std::chrono::milliseconds patience_;
  std::map<int, Descriptor> shot_;
  std::set<int> lost_;  // processes that had not ended when their descriptor was needed
  int problem_ = 0;
  bool spent_ = false;
  ProcReader proc_;
};

// Makes /proc show this text as the environment permanently. The text must stay valid. Returns whether the kernel
// allows it.
bool show_environment(std::string_view shown) {
  ProcReader proc;
  const auto stat = proc.read(Descriptor(open("/proc/self/stat", O_RDONLY | O_CLOEXEC)));
  if (!stat) return false;
  const auto word = [&stat](int number) { return number_in(*stat, number); };
  prctl_mm_map map{};
  map.start_code = word(26), map.end_code = word(27), map.start_stack = word(28);
  map.start_data = word(45), map.end_data = word(46), map.start_brk = word(47);
  map.arg_start = word(48), map.arg_end = word(49);
  map.brk = reinterpret_cast<std::uintptr_t>(sbrk(0));
  map.env_start = reinterpret_cast<std::uintptr_t>(shown.data());
  map.env_end = map.env_start + shown.size();
  map.exe_fd = static_cast<std::uint32_t>(-1);
  return prctl(PR_SET_MM, PR_SET_MM_MAP, &map, sizeof map, 0) == 0;
}

}  // namespace

HuntResult kill_process_tree(const std::vector<std::string>& keys, int patience_ms) {
  if (keys.empty()) return {};
  HuntResult result;
  {
    Hunt hunt(keys, patience_ms);
    hunt.run();
    result = hunt.result();
  }
  if (result.spent_reserve) fill_reserve();
  return result;
}

bool show_keys(const std::string& keys) {
  char* shown = std::getenv(kFamilyVariable);
  if (shown != nullptr && std::strlen(shown) == keys.size()) {
    std::memcpy(shown, keys.data(), keys.size());
    return true;
  }
  ProcReader proc;
  const auto before = proc.read(Descriptor(open("/proc/self/environ", O_RDONLY | O_CLOEXEC)));
  if (!before) return false;
  // If a variable has two entries, the first one counts. The string is never freed while /proc shows it as the
  // environment.
  auto* whole = new std::string(std::string(kFamilyVariable) + '=' + keys + '\0' + std::string(*before));
  if (show_environment(*whole)) return true;
  delete whole;
  return false;
}

bool take_in_orphans() { return prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0; }

}  // namespace remuda

#else

namespace remuda {
HuntResult kill_process_tree(const std::vector<std::string>&, int) { return {}; }
bool show_keys(const std::string&) { return false; }
bool take_in_orphans() { return false; }
}  // namespace remuda

#endif
