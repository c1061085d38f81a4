// Counts the log records and warnings that workers have sent, and those that the pool's caller has read. The caller
// reads them before the results of the commands that logged them.
#pragma once

#include <atomic>
#include <cstdint>

#include "shm/plan.hpp"

namespace remuda {

class RecordCounts {
 public:
  explicit RecordCounts(const Records& records) : records_(records) {}

  std::uint32_t sent() const { return records_.sent.load(std::memory_order_relaxed); }
  bool any_unread() const { return sent() != read_; }
  void note_read(std::uint32_t sent) { read_ = sent; }

 private:
  const Records& records_;
  std::uint32_t read_ = 0;
};

}  // namespace remuda
