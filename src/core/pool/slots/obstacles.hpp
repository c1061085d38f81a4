// What keeps commands from being sent to a slot, or results from being taken: envs that were not reset, envs that were
// lost, and faults that were noted and not raised yet.
//
// The hub looks here before it sends anything.  Faults are kept in Python, which tells of them here in the same step.
#pragma once

#include <cstdint>
#include <vector>

namespace remuda {

class Obstacles {
 public:
  // No slot was reset so far, and no env is lost.
  Obstacles(std::uint32_t slots, std::uint32_t envs) : must_reset_(slots, true), count_(slots), lost_(envs) {}

  // A slot takes no step or observe until the next reset is sent to it.
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

  // An env answers nothing any more, for good.
  void lose(std::uint32_t env) { lost_.at(env) = any_lost_ = true; }
  bool is_lost(std::uint32_t env) const { return lost_.at(env); }
  bool any_lost() const { return any_lost_; }

  // Whether there are faults that whoever receives next is to be told.
  void set_untold(bool any) { any_untold_ = any; }
  bool any_untold() const { return any_untold_; }

 private:
  std::vector<bool> must_reset_;  // by slot
  std::uint32_t count_;           // of them
  std::vector<bool> lost_;        // by env
  bool any_lost_ = false;
  bool any_untold_ = false;
};

}  // namespace remuda
