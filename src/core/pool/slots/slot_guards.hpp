// The conditions that prevent a command to a slot, or the handing out of results: envs that must be reset, lost envs,
// and faults that have not been raised.
//
// The hub checks the conditions before it sends commands or hands out results. Python keeps the faults themselves, and
// changes the conditions together with them.
#pragma once

#include <cstdint>
#include <vector>

#include "ipc/protocol.hpp"

namespace remuda {

class SlotGuards {
 public:
  // At first, every slot must be reset, and no env is lost.
  SlotGuards(std::uint32_t slots, std::uint32_t envs)
      : required_(slots, Required::kForAll), count_(slots), lost_(envs) {}

  // Refuses steps of this slot until a reset is sent to it, and unless `can_be_observed` also observes.
  void require_reset(std::uint32_t slot, bool can_be_observed = false) {
    count_ += !must_reset(slot);
    required_[slot] = can_be_observed ? Required::kForSteps : Required::kForAll;
  }
  void note_reset(std::uint32_t slot) {
    if (count_ == 0) return;
    count_ -= must_reset(slot);
    required_[slot] = Required::kNone;
  }
  bool must_reset(std::uint32_t slot) const { return required_.at(slot) != Required::kNone; }
  bool must_reset_before(Op op, std::uint32_t slot) const {
    return op != Op::kReset && (op == Op::kStep ? must_reset(slot) : required_[slot] == Required::kForAll);
  }
  bool any_must_reset() const { return count_ != 0; }

  // Marks an env as lost: it will never answer again.
  void lose(std::uint32_t env) { lost_.at(env) = any_lost_ = true; }
  bool is_lost(std::uint32_t env) const { return lost_.at(env); }
  bool any_lost() const { return any_lost_; }

  // Sets whether the next call to receive must raise faults, and whether it must do so even while results are missing.
  void note_faults(bool any_unraised, bool is_urgent) { any_unraised_ = any_unraised, is_urgent_ = is_urgent; }
  bool any_unraised() const { return any_unraised_; }
  bool is_urgent() const { return is_urgent_; }

 private:
  enum class Required : std::uint8_t { kNone, kForSteps, kForAll };

  std::vector<Required> required_;  // For each slot, the commands that need a reset before.
  std::uint32_t count_;             // The number of slots that must be reset.
  std::vector<bool> lost_;          // For each env, whether it is lost.
  bool any_lost_ = false;
  bool any_unraised_ = false, is_urgent_ = false;
};

}  // namespace remuda
