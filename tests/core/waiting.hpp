// Waits for a bell without a useful time limit. If a wake-up is lost, a test hangs until the test runner's timeout.
#pragma once

#include <thread>

#include "ipc/doorbell.hpp"

inline constexpr remuda::Nanoseconds kForever = std::chrono::hours(24);

// Returns a policy that never spins.
inline remuda::SpinPolicy no_spinning() {
  static remuda::SharedCores cores{};
  return {cores, 0, remuda::Nanoseconds(0)};
}

// Waits until the bell has been rung up to `target`, as a waiter must: checks, waits, checks again.
inline void wait_until(remuda::Bell& bell, std::uint32_t target, remuda::SpinPolicy spins = no_spinning()) {
  while (!remuda::reached(bell, target)) remuda::wait(bell, target, kForever, spins);
}

inline void wait_until_asleep(const remuda::Bell& bell) {
  while (bell.sleeping.load() == 0) std::this_thread::yield();
}
