#include "os/process_tree.hpp"

#include "os/descriptors.hpp"
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

// The maximum number of further searches, a millisecond apart, if a process is in the middle of an exec.
constexpr int kMaxSecondLooks = 50;
// The number of the word in /proc/<pid>/stat that is the address of the environment's start. The next word is the
// address of its end.
constexpr int kEnvStart = 50;

// Reads files of /proc, one at a time, into one reused buffer.
class ProcReader {
 public:
  // Returns the file's content, which is valid until the next call. Returns nullopt if the file could not be opened or
  // read, because this process lacks the right or the other process has ended.
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

// Returns the value of kFamilyVariable in an environment in the format of /proc; empty if the variable is not set.
std::string_view keys_in(std::string_view environment) {
  const std::string_view name(kFamilyVariable);
  while (!environment.empty()) {
    const std::string_view entry = environment.substr(0, environment.find('\0'));
    if (entry.size() > name.size() && entry[name.size()] == '=' && entry.substr(0, name.size()) == name)
      return entry.substr(name.size() + 1);
    environment.remove_prefix(std::min(entry.size() + 1, environment.size()));
  }
  return {};
}

// Returns the words of /proc/<pid>/stat from number `first` on, counted from 1. The second word may contain blanks.
std::string_view stat_from(std::string_view stat, int first) {
  stat.remove_prefix(std::min(stat.size(), stat.rfind(')') + 2));
  for (int word = 3; word < first && !stat.empty(); ++word)
    stat.remove_prefix(std::min(stat.size(), stat.find(' ') + 1));
  return stat;
}

std::uint64_t number_in(std::string_view stat, int word) {
  return std::strtoull(std::string(stat_from(stat, word).substr(0, 20)).c_str(), nullptr, 10);
}

// Whether /proc shows the pids of this process's namespace. It may be missing, or belong to another container.
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
      // After a wrap-around of the pids, a new process may have a pid that this pass had already checked.
      if (found.somebody || last_pid() < before) {
        second_looks = 0;
        continue;
      }
      if (!found.unsure || ++second_looks > kMaxSecondLooks) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  // Waits for the end of the killed processes, then reaps those that are children of this process. They are all reaped
  // after the waits, because an orphan becomes a child of this process only after its parent has ended.
  HuntResult result() {
    const auto deadline = Clock::now() + patience_;
    HuntResult result{{lost_.begin(), lost_.end()}, problem_, spent_};
    for (const auto& [pid, pidfd] : shot_)
      if (!ends_until(deadline, pidfd)) result.survivors.push_back(pid);
    for (const auto& [pid, pidfd] : shot_) reap(pidfd);
    return result;
  }

 private:
  struct Found {
    bool somebody = false;  // whether a process was found that was new; it may have forked others that the pass missed
    bool unsure = false;
  };
  enum class Sight { kStranger, kFamily, kBetweenPrograms };

  // Checks each process once: first the processes in a listing of /proc, then those that were created since the listing
  // began. The latter have pids above `before`, the last pid assigned before the pass. The pass ends even if a process
  // keeps forking: it creates pids more slowly than the pass checks them, and once killed it forks no more.
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
    for (int last = last_pid(); next <= last; last = last_pid())
      while (next <= last) meet(next++, found);
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

  // Whether a process that shows no environment may show one soon, because it is in the middle of an exec: the old
  // memory is gone, and the new environment is not in place yet. Kernel threads and dead processes have no memory and
  // thus never have an environment. A process with memory never shows an environment only if its environment is empty,
  // with the same address as start and end.
  bool may_yet_show_one(int pid) {
    const auto memory = read(pid, "statm");
    if (!memory || memory->substr(0, 2) == "0 ") return false;
    const auto stat = read(pid, "stat");
    if (!stat) return false;
    const auto [start, end] = std::pair(number_in(*stat, kEnvStart), number_in(*stat, kEnvStart + 1));
    return start == 0 || start != end;
  }

  // Kills a process. Returns whether it was new to this search.
  bool shoot(int pid) {
    if (lost_.count(pid) != 0) return false;
    if (auto known = shot_.find(pid); known != shot_.end()) {
      if (!ends_until(Clock::now(), known->second)) return false;  // the killed process has not ended yet
      reap(known->second);
      shot_.erase(known);  // A new process has the pid of a killed one.
    }
    Descriptor pidfd(open_somehow([pid] { return static_cast<int>(syscall(SYS_pidfd_open, pid, 0)); }));
    // The process may have just ended and may have started others, so another pass is needed.
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

  // Calls `open` and returns the descriptor. If this process has no free descriptor, frees one first.
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

  // Frees a descriptor: first the reserve, then one by one those of killed processes. Returns false if no descriptor
  // could be freed.
  bool make_room() {
    if (spend_reserve()) return spent_ = true;
    if (shot_.empty()) return false;
    const auto first = shot_.begin();
    if (ends_until(Clock::now() + patience_, first->second))
      reap(first->second);
    else
      lost_.insert(first->first);
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
  std::set<int> lost_;  // the pids of killed processes that had not ended when `make_room` closed their descriptors
  int problem_ = 0;
  bool spent_ = false;
  ProcReader proc_;
};

// Makes /proc show this text as the environment of this process permanently. The text must stay in memory. Returns
// whether the kernel allows it.
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
  // The text that /proc shows instead of the first environment of this process. It is never freed.
  static std::string* text = nullptr;
  const std::string name = std::string(kFamilyVariable) + '=';
  char* shown = text != nullptr ? text->data() + name.size() : std::getenv(kFamilyVariable);
  if (shown != nullptr && std::strlen(shown) == keys.size()) {
    std::memcpy(shown, keys.data(), keys.size());
    return true;
  }
  ProcReader proc;
  const auto before = proc.read(Descriptor(open("/proc/self/environ", O_RDONLY | O_CLOEXEC)));
  if (!before) return false;
  // The new entry comes first, because the first of two entries of a variable counts.
  auto* whole = new std::string(name + keys + '\0' + std::string(*before));
  if (show_environment(*whole)) {
    text = whole;
    return true;
  }
  delete whole;
  return false;
}

bool take_in_orphans() { return prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0; }

}  // namespace remuda

#endif
