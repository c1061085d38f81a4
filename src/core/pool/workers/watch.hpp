// Checks for everything that does not ring the pool's bell: processes that end, readable descriptors, an alarm.
//
// The caller owns the descriptors, and may close them and open others with the same numbers. Therefore nothing is
// registered with the kernel, as epoll would require. Each check (`look`) polls the descriptors that are set at that
// moment.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "ipc/doorbell.hpp"

namespace remuda {

class Watch {
 public:
  static constexpr Nanoseconds kInterval = std::chrono::milliseconds(10);  // the longest delay until an event is seen

  explicit Watch(std::uint32_t workers) : pidfds_(workers, -1) {}

  // Sets the descriptor (-1: none) that becomes readable when the worker's process ends. Each `look` reports the end
  // until the descriptor is replaced.
  void set_process(std::uint32_t worker, int pidfd) { pidfds_[worker] = pidfd; }
  // Watches this descriptor permanently: data on it counts as news, which ends the caller's wait.
  void set_relay(int fd) { relay_ = fd; }
  // Watches these descriptors and the alarm until the next call of `listen`: both count as news. Clears the current
  // news.
  void listen(std::vector<int> fds, Clock::time_point alarm) {
    listened_ = std::move(fds);
    alarm_ = alarm;
    news_ = false;
  }
  bool has_news() const { return news_; }
  void raise_news() { news_ = true; }  // the news last until the next `listen`

  // Sets the interval between two looks. Only benchmarks that slow the pool down need this.
  void look_every(Nanoseconds interval) { interval_ = interval; }

  // Returns whether the next look is due, because of the interval or the alarm.
  bool is_due(Clock::time_point now) const { return now - looked_ >= interval_ || is_alarm_due(now); }
  // Returns the longest time that a sleep may last if it starts now.
  Nanoseconds longest_sleep(Clock::time_point now) const {
    if (!has_alarm()) return interval_;
    return std::clamp<Nanoseconds>(alarm_ - now, Nanoseconds(0), interval_);
  }
  // Returns the workers with a process that has ended, and updates `has_news`.
  std::vector<std::uint32_t> look(Clock::time_point now);

 private:
  bool has_alarm() const { return alarm_ != Clock::time_point{}; }
  bool is_alarm_due(Clock::time_point now) const { return has_alarm() && now >= alarm_; }

  std::vector<int> pidfds_;  // indexed by worker
  std::vector<int> listened_;
  int relay_ = -1;
  Nanoseconds interval_ = kInterval;
  Clock::time_point alarm_{};
  Clock::time_point looked_{};
  bool news_ = false;
};

}  // namespace remuda
