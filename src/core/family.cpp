#include "family.hpp"

#include "platform.hpp"

#if REMUDA_LINUX

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <thread>
#include <unordered_set>
#include <utility>

namespace remuda {

namespace {

using Clock = std::chrono::steady_clock;

// How often we come back to a process that is just becoming another program, a millisecond apart.
constexpr int kMaxSecondLooks = 50;

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  operator int() const { return fd_; }

 private:
  int fd_;
};

// Reads files of /proc/<pid>, one at a time into the same memory.
class ProcReader {
 public:
  // Nothing when we may not look, or there is nobody any more.  Valid until the next call.
  std::optional<std::string_view> read(int pid, const char* name) {
    const std::string path = "/proc/" + std::to_string(pid) + "/" + name;
    Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
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

// The value of our variable in what /proc tells of an environment; empty where there is none.
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

// The words from the `first` on (counted from 1) of /proc/<pid>/stat; the second may have blanks in it.
std::string_view stat_from(std::string_view stat, int first) {
  stat.remove_prefix(std::min(stat.size(), stat.rfind(')') + 2));
  for (int word = 3; word < first && !stat.empty(); ++word) {
    stat.remove_prefix(std::min(stat.size(), stat.find(' ') + 1));
  }
  return stat;
}

class Hunt {
 public:
  explicit Hunt(const std::vector<std::string>& keys) : keys_(keys.begin(), keys.end()) {}

  void run() {
    int second_looks = 0;
    while (true) {
      const Found found = pass();
      if (found.somebody) continue;
      if (!found.unsure || ++second_looks > kMaxSecondLooks) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  std::vector<int> survivors(Clock::time_point deadline) const {
    std::vector<int> alive;
    for (const auto& [pid, pidfd] : shot_) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
      if (!ended(pidfd, std::max<int>(0, static_cast<int>(left)))) alive.push_back(pid);
    }
    return alive;
  }

 private:
  struct Found {
    bool somebody = false;  // whom we had not seen before: he may have started others behind our back
    bool unsure = false;
  };
  enum class Sight { kStranger, kFamily, kBetweenPrograms };

  // Once through all processes.  One that was forked before its parent was shot is there in the next pass; after a
  // SIGKILL none is forked.
  Found pass() {
    Found found;
    std::unique_ptr<DIR, int (*)(DIR*)> all(opendir("/proc"), closedir);
    if (all == nullptr) return found;
    while (const dirent* entry = readdir(all.get())) {
      int pid = 0;
      const char* end = entry->d_name + std::strlen(entry->d_name);
      if (std::from_chars(entry->d_name, end, pid).ptr != end || pid == self_) continue;
      const Sight sight = look(pid);
      found.unsure |= sight == Sight::kBetweenPrograms;
      if (sight == Sight::kFamily) found.somebody |= shoot(pid);
    }
    return found;
  }

  Sight look(int pid) {
    const auto environment = proc_.read(pid, "environ");
    if (!environment) return Sight::kStranger;
    if (environment->empty()) return is_between_programs(pid) ? Sight::kBetweenPrograms : Sight::kStranger;
    for (std::string_view keys = keys_in(*environment); !keys.empty();) {
      const std::string_view key = keys.substr(0, keys.find(':'));
      if (keys_.count(std::string(key)) != 0) return Sight::kFamily;
      keys.remove_prefix(std::min(key.size() + 1, keys.size()));
    }
    return Sight::kStranger;
  }

  // In an exec there is a moment when the old memory is gone and the new environment not yet in place.  (The kernel's
  // own threads, and the dead, have no memory at all.)
  bool is_between_programs(int pid) {
    const auto memory = proc_.read(pid, "statm");
    if (!memory || memory->substr(0, 2) == "0 ") return false;
    constexpr int kEnvEnd = 51;
    const auto stat = proc_.read(pid, "stat");
    return stat && stat_from(*stat, kEnvEnd).substr(0, 2) == "0 ";
  }

  // Whether it was somebody new.
  bool shoot(int pid) {
    if (auto known = shot_.find(pid); known != shot_.end()) {
      if (!ended(known->second, 0)) return false;  // it is still dying
      shot_.erase(known);                          // another one with its pid
    }
    Descriptor pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    if (pidfd < 0) return errno == ESRCH || shoot_blindly(pid);  // it ended just now: look who has come after it
    if (look(pid) != Sight::kFamily) return true;
    if (syscall(SYS_pidfd_send_signal, static_cast<int>(pidfd), SIGKILL, nullptr, 0) != 0) return errno == ESRCH;
    shot_.emplace(pid, std::move(pidfd));
    return true;
  }

  // Without a descriptor left: rather a simulator killed by its number than one that stays for ever.
  bool shoot_blindly(int pid) { return blind_.insert(pid).second && kill(pid, SIGKILL) == 0; }

  static bool ended(int pidfd, int timeout_ms) {
    pollfd fd{pidfd, POLLIN, 0};
    return poll(&fd, 1, timeout_ms) > 0;
  }

  const int self_ = getpid();
  const std::unordered_set<std::string> keys_;
  std::map<int, Descriptor> shot_;
  std::unordered_set<int> blind_;
  ProcReader proc_;
};

}  // namespace

std::vector<int> kill_family(const std::vector<std::string>& keys, int patience_ms) {
  if (keys.empty()) return {};
  Hunt hunt(keys);
  hunt.run();
  return hunt.survivors(Clock::now() + std::chrono::milliseconds(patience_ms));
}

bool show_family(const std::string& keys) {
  char* shown = std::getenv(kFamilyVariable);
  if (shown == nullptr || std::strlen(shown) != keys.size()) return false;
  std::memcpy(shown, keys.data(), keys.size());
  return true;
}

}  // namespace remuda

#else

namespace remuda {
std::vector<int> kill_family(const std::vector<std::string>&, int) { return {}; }
bool show_family(const std::string&) { return false; }
}  // namespace remuda

#endif
