// Maps slots to the envs that back them, and keeps the queue of spare envs.
//
// Without spares, env i backs slot i. With spares, a slot that has ended its episode continues with the spare that has
// waited longest, and its previous env joins the end of the queue. Slots take spares in the order in which their
// commands were sent, never in the order of results, so the mapping is the same in every run.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <vector>

namespace remuda {

class Seating {
 public:
  static constexpr std::uint32_t kNoSlot = 0xffffffff;

  // `envs`: the number of envs; those beyond the number of slots are spares.
  Seating(std::uint32_t slots, std::uint32_t envs) : envs_(slots), slots_(envs) { seat_in_order(); }

  // Makes env i back slot i, and queues the other envs as spares, in order.
  void seat_in_order() {
    spares_.clear();
    for (std::uint32_t env = 0; env < slots_.size(); ++env) {
      const bool is_spare = env >= envs_.size();
      slots_[env] = is_spare ? kNoSlot : env;
      if (is_spare)
        spares_.push_back(env);
      else
        envs_[env] = env;
    }
  }

  std::uint32_t env_of(std::uint32_t slot) const { return envs_[slot]; }
  std::uint32_t slot_of(std::uint32_t env) const { return slots_[env]; }  // kNoSlot if the env is a spare
  bool has_spares() const { return !spares_.empty(); }

  // Gives the slot another env: the spare that has waited longest. Returns the slot's previous env, which joins the end
  // of the queue.
  std::uint32_t swap_in_spare(std::uint32_t slot) {
    const std::uint32_t finished = envs_[slot], next = spares_.front();
    spares_.pop_front();
    spares_.push_back(finished);
    slots_[finished] = kNoSlot;
    slots_[next] = slot;
    envs_[slot] = next;
    return finished;
  }

  // Queues a slot that has ended its episode for a spare, which will complete the slot's command. `order`: the
  // number of this command when it was sent for the first time.
  void ask_for_spare(std::uint32_t slot, std::uint64_t order) { due_.push_back({order, slot}); }
  bool anyone_asks() const { return !due_.empty(); }
  // Removes and returns the queued slots that may take a spare now, in the order in which their commands were sent.
  // `open`: the number of the first command that may still end an episode. Slots with later commands have to wait,
  // because the slot of this command would take its spare first.
  std::vector<std::uint32_t> take_due(std::uint64_t open) {
    std::sort(due_.begin(), due_.end(), [](const Due& a, const Due& b) { return a.order < b.order; });
    const auto known = std::find_if(due_.begin(), due_.end(), [open](const Due& due) { return due.order > open; });
    std::vector<std::uint32_t> slots;
    for (auto due = due_.begin(); due != known; ++due) slots.push_back(due->slot);
    due_.erase(due_.begin(), known);
    return slots;
  }

 private:
  struct Due {
    std::uint64_t order;
    std::uint32_t slot;
  };

  std::vector<std::uint32_t> envs_;   // The env of each slot.
  std::vector<std::uint32_t> slots_;  // The slot of each env.
  std::deque<std::uint32_t> spares_;  // The spare that has waited longest comes first.
  std::vector<Due> due_;
};

}  // namespace remuda
