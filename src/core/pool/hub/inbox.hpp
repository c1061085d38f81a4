// What somebody has to deal with: answers to messages and slots that failed, in the order in which they came; workers
// that died; workers that are late, or whose results make no sense.
//
// Each comes one by one and stays until it is removed: whoever deals with it may be interrupted, and then begins with
// it again.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "ipc/protocol.hpp"
#include "python/numpy_api.hpp"

namespace remuda {

struct Message {
  std::uint32_t worker;
  std::optional<std::uint32_t> slot;  // of an answer: the env that was asked
  std::uint64_t sequence;
  std::uint32_t flags;
  nb::object parts;

  bool is_answer() const { return (flags & kIsMessage) != 0; }
  // A slot that failed instead of getting ready.
  bool is_fault() const { return (flags & kIsFailure) && !is_answer(); }
};

struct LateWorker {
  std::uint32_t worker;
  std::optional<Op> op;  // that it is late with; none: its results make no sense
};

struct DeadWorker {
  std::uint32_t worker;
  std::vector<std::uint32_t> orphaned;    // the first slot of each env that had a command
  std::vector<std::uint64_t> unanswered;  // the sequences of messages without an answer
};

class Inbox {
 public:
  // -- messages ----------------------------------------------------------------------------------------------

  bool has_message() const { return !messages_.empty(); }
  const Message& first_message() const { return messages_.front(); }
  void add(Message message) {
    faults_ += message.is_fault();
    awaited_ -= message.is_answer();
    messages_.push_back(std::move(message));
  }
  void remove_message() {
    faults_ -= first_message().is_fault();
    messages_.pop_front();
  }
  bool has_faults() const { return faults_ != 0; }

  // Answers that are still to come.
  void await_answer() { ++awaited_; }
  void forgo_answers(std::size_t count) { awaited_ -= count; }
  bool awaits_answers() const { return awaited_ != 0; }

  // -- workers -----------------------------------------------------------------------------------------------

  std::optional<std::uint32_t> first_dead() const {
    return dead_.empty() ? std::nullopt : std::optional(dead_.front());
  }
  void add_dead(std::uint32_t worker) {
    if (std::find(dead_.begin(), dead_.end(), worker) == dead_.end()) dead_.push_back(worker);
  }
  void remove_dead() { dead_.pop_front(); }

  std::optional<LateWorker> first_late() const { return late_.empty() ? std::nullopt : std::optional(late_.front()); }
  void add_late(LateWorker worker) { late_.push_back(worker); }
  void remove_late() { late_.pop_front(); }

  // Something that is no slot's result, be it a fault: answers, renewals that are due, workers.
  bool has_others() const { return messages_.size() != faults_ || !dead_.empty() || !late_.empty(); }

 private:
  std::deque<Message> messages_;
  std::size_t faults_ = 0;          // of them
  std::size_t awaited_ = 0;         // answers
  std::deque<std::uint32_t> dead_;  // each once
  std::deque<LateWorker> late_;
};

}  // namespace remuda
