// The events that Python must decide on. These are, in the order of arrival, answers to messages and failed slots; then
// workers that are late or send unsound results; then dead workers.
//
// Python takes the events one by one. Its code may be interrupted, and then starts over with the same event. Therefore
// an event stays until it is removed.
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
  // The slot that failed or needs a renewal; for an answer, the env of the message.
  std::optional<std::uint32_t> slot;
  std::uint64_t sequence;
  std::uint32_t flags;
  nb::object parts;

  bool is_answer() const { return (flags & kIsMessage) != 0; }
  // Returns whether this is the failure of a slot.
  bool is_fault() const { return (flags & kIsFailure) && !is_answer(); }
};

struct LateWorker {
  std::uint32_t worker;
  std::optional<Op> op;    // the op that missed its deadline; nullopt if the worker's results are unsound
  std::uint64_t task = 0;  // the worker's task of that op; 0 if it has not begun the op
};

struct DeadWorker {
  std::uint32_t worker;
  std::vector<std::uint32_t> orphaned;    // The first slot of each env with a command in flight.
  std::vector<std::uint64_t> unanswered;  // The sequences of the messages that were not answered.
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

  // Counts one more answer that has not arrived yet.
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

  // Returns whether there is an event other than a fault: an answer, a renewal that is due, a dead or late worker.
  bool has_others() const { return messages_.size() != faults_ || !dead_.empty() || !late_.empty(); }

 private:
  std::deque<Message> messages_;
  std::size_t faults_ = 0;          // The number of faults in `messages_`.
  std::size_t awaited_ = 0;         // The number of answers that have not arrived yet.
  std::deque<std::uint32_t> dead_;  // The dead workers, each once.
  std::deque<LateWorker> late_;
};

}  // namespace remuda
