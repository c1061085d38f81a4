// Which env backs which slot, and who has a place in the queue of spares.
//
// Slot i is backed by env i, unless there are spares: then a slot whose episode is over goes on with whichever env has
// waited longest, and its own takes the last place in that queue.  The order is that of sending, never of finishing, so
// it is the same in every run.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

namespace remuda {

class Seating {
 public:
  static constexpr std::uint32_t kNoSlot = 0xffffffff;

  // `envs`: at least as many as `slots`; the rest are spares.
  Seating(std::uint32_t slots, std::uint32_t envs) : envs_(slots), slots_(envs) { seat_in_order(); }

  // Slot i is backed by env i again, and the spares wait in order.
  void seat_in_order();

  std::uint32_t env_of(std::uint32_t slot) const { return envs_[slot]; }
  std::uint32_t slot_of(std::uint32_t env) const { return slots_[env]; }  // kNoSlot: it is a spare
  bool has_spares() const { return !spares_.empty(); }

  // The slot goes on with the spare that has waited longest; returns its env until now, which is the last spare now.
  std::uint32_t swap_in_spare(std::uint32_t slot);

  // A slot whose episode is over is to have a spare for the rest of the command that was the `sequence`-th to be sent.
  void ask_for_spare(std::uint32_t slot, std::uint64_t sequence) { due_.push_back({sequence, slot}); }
  bool anyone_asks() const { return !due_.empty(); }
  // Takes who has asked and was not sent something after `open`, the first command of which it is not known yet whether
  // it will ask: who was sent something later may not choose before that is.  In the order of sending.
  std::vector<std::uint32_t> take_due(std::uint64_t open);

 private:
  struct Due {
    std::uint64_t sequence;
    std::uint32_t slot;
  };

  std::vector<std::uint32_t> envs_;   // by slot
  std::vector<std::uint32_t> slots_;  // by env
  std::deque<std::uint32_t> spares_;  // the one that has waited longest first
  std::vector<Due> due_;
};

}  // namespace remuda
