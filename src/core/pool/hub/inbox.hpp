// What somebody has to deal with, in the order in which it came: answers to messages, and slots that failed.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "ipc/protocol.hpp"
#include "python/numpy_api.hpp"

namespace remuda {

struct Message {
  std::uint32_t worker;
  std::optional<std::uint32_t> slot;  // of an answer: the env that was asked
  std::uint64_t sequence;
  std::uint32_t flags;
  nb::object parts;

  // A slot that failed instead of getting ready.
  bool is_fault() const { return (flags & kIsFailure) && !(flags & kIsMessage); }
};

class Inbox {
 public:
  bool empty() const { return messages_.empty(); }
  const Message& first() const { return messages_.front(); }
  void add(Message message) {
    faults_ += message.is_fault();
    messages_.push_back(std::move(message));
  }
  void remove_first() {
    faults_ -= first().is_fault();
    messages_.pop_front();
  }
  bool has_faults() const { return faults_ != 0; }
  bool has_others() const { return messages_.size() != faults_; }  // answers, and renewals that are due

 private:
  std::deque<Message> messages_;
  std::size_t faults_ = 0;  // of them
};

}  // namespace remuda
