// Looks at what does not ring the pool's doorbell: processes that end, descriptors that become readable, an alarm.
//
// The descriptors stay the caller's, who may close them and open others of the same numbers.  So nothing is registered
// with the kernel (as it would be with epoll): each look asks about those that are named at that moment.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "ipc/doorbell.hpp"

namespace remuda {

class Watch {
 public:
  static constexpr Nanoseconds kInterval = std::chrono::milliseconds(10);  // the bound on noticing any of it

  explicit Watch(std::uint32_t workers) : pidfds_(workers, -1) {}

  // `pidfd` (-1: none) becomes readable when the worker's process ends, of which every look tells until this is
  // changed.
  void set_process(std::uint32_t worker, int pidfd) { pidfds_[worker] = pidfd; }
  // What this descriptor brings is news, for good.
  void set_relay(int fd) { relay_ = fd; }
  // So it is for these, and when the alarm goes off, until others take their place.  What was news until now is none
  // any more.
  void listen(std::vector<int> fds, Clock::time_point alarm) {
    listened_ = std::move(fds);
    alarm_ = alarm;
    news_ = false;
  }
  bool has_news() const { return news_; }
  void raise_news() { news_ = true; }  // until the next `listen`

  // Only for benchmarks, which run slower than the clock does.
  void look_every(Nanoseconds interval) { interval_ = interval; }

  // Whether the next look is due, for the time or the alarm.
  bool is_due(Clock::time_point now) const { return now - looked_ >= interval_ || is_alarm_due(now); }
  // How long a sleep that begins now may last.
  Nanoseconds longest_sleep(Clock::time_point now) const {
    if (!has_alarm()) return interval_;
    return std::clamp<Nanoseconds>(alarm_ - now, Nanoseconds(0), interval_);
  }
  // Returns the workers whose processes have ended, and remembers whether there is news.
  std::vector<std::uint32_t> look(Clock::time_point now);

 private:
  bool has_alarm() const { return alarm_ != Clock::time_point{}; }
  bool is_alarm_due(Clock::time_point now) const { return has_alarm() && now >= alarm_; }

  std::vector<int> pidfds_;  // by worker
  std::vector<int> listened_;
  int relay_ = -1;
  Nanoseconds interval_ = kInterval;
  Clock::time_point alarm_{};
  Clock::time_point looked_{};
  bool news_ = false;
};

}  // namespace remuda
