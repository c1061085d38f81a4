// A ring for tests. Its counters start at a given value, so that a test can make them wrap around.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

#include "ipc/ring.hpp"

template <class T>
class SharedRing {
 public:
  SharedRing(std::uint32_t capacity, std::uint32_t count) : capacity_(capacity) {
    std::size_t bytes = (remuda::ring_bytes<T>(capacity) + 63) / 64 * 64;
    memory_.reset(std::aligned_alloc(64, bytes));
    auto* header = new (memory_.get()) remuda::RingHeader{};
    header->published = header->consumed = count;
    new (header + 1) T[capacity]{};
  }
  remuda::RingHeader* header() const { return static_cast<remuda::RingHeader*>(memory_.get()); }
  remuda::RingProducer<T> producer() const { return {header(), capacity_}; }
  remuda::RingConsumer<T> consumer() const { return {header(), capacity_}; }
  std::uint32_t capacity() const { return capacity_; }

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  std::unique_ptr<void, Free> memory_;
  std::uint32_t capacity_;
};
