// The conditions that keep commands from being sent to a slot, or results from being taken: envs that must be reset,
// lost envs, and faults that have not been raised.
//
// The hub checks the conditions before it sends or hands out anything. Python keeps the faults themselves, and sets the
// conditions in the same transaction.
#pragma once

#include <cstdint>
#include <vector>

namespace remuda {

class Obstacles {
 public:
  // Starts with every slot in need of a reset, and no env lost.
  Obstacles(std::uint32_t slots, std::uint32_t envs) : must_reset_(slots, true), count_(slots), lost_(envs) {}

  // Refuses steps and observes of this slot until a reset is sent to it.
  void require_reset(std::uint32_t slot) {
    count_ += !must_reset_.at(slot);
    must_reset_[slot] = true;
  }
  void note_reset(std::uint32_t slot) {
    if (count_ == 0) return;
    count_ -= must_reset_[slot];
    must_reset_[slot] = false;
  }
  bool must_reset(std::uint32_t slot) const { return must_reset_.at(slot); }
  bool any_must_reset() const { return count_ != 0; }

  // Marks an env that will never answer again.
  void lose(std::uint32_t env) { lost_.at(env) = any_lost_ = true; }
  bool is_lost(std::uint32_t env) const { return lost_.at(env); }
  bool any_lost() const { return any_lost_; }

  // Sets whether the next call to receive must raise faults.
  void set_unraised(bool any) { any_unraised_ = any; }
  bool any_unraised() const { return any_unraised_; }

 private:
  std::vector<bool> must_reset_;  // by slot
  std::uint32_t count_;           // of the slots in `must_reset_`
  std::vector<bool> lost_;        // by env
  bool any_lost_ = false;
  bool any_unraised_ = false;
};

}  // namespace remuda
