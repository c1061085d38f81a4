// The events that Python must decide on. These are, in the order of arrival, answers to messages and failed slots; then
// workers that are late or send unsound results; then workers that have ended.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
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
};

struct LateWorker {
  std::uint32_t worker;
  std::optional<Op> op;    // the op that missed its deadline; nullopt if the worker's results are unsound
  std::uint64_t task = 0;  // the worker's task of that op; 0 if it has not begun the op
};

struct EndedWorker {  // Its process has ended, or it is dead and was sent another command.
  std::uint32_t worker;
};

struct DeadWorker {
  std::vector<std::uint32_t> orphaned;    // The first slot of each env with a command in flight.
  std::vector<std::uint64_t> unanswered;  // The sequences of the messages that were not answered.
};

class Inbox {
 public:
  void add(Message message) {
    awaited_ -= message.is_answer();
    messages_.push_back(std::move(message));
  }
  void add_late(LateWorker worker) { late_.push_back(worker); }
  void add_ended(std::uint32_t worker) {
    if (std::find(ended_.begin(), ended_.end(), worker) == ended_.end()) ended_.push_back(worker);
  }
  std::vector<Message> take_messages() { return std::exchange(messages_, {}); }
  std::vector<LateWorker> take_late() { return std::exchange(late_, {}); }
  std::vector<std::uint32_t> take_ended() { return std::exchange(ended_, {}); }

  // See `Collected`.
  template <class Act>
  void each_reference(Act act) {
    for (Message& message : messages_) act(message.parts);
  }

  // Counts one more answer that has not arrived yet.
  void await_answer() { ++awaited_; }
  void forgo_answers(std::size_t count) { awaited_ -= count; }
  bool awaits_answers() const { return awaited_ != 0; }

 private:
  std::vector<Message> messages_;
  std::vector<LateWorker> late_;
  std::vector<std::uint32_t> ended_;  // each once
  std::size_t awaited_ = 0;           // the number of answers that have not arrived yet
};

}  // namespace remuda
