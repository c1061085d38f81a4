// A ring for tests. Its counters start at a given value, so that a test can make them wrap around.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <thread>

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

// Waits for the next record. Returns false if the producer has ended and all records were read.
template <class T>
bool await_record(remuda::RingConsumer<T>& consumer, T& record, const std::atomic<bool>& has_ended) {
  for (;;) {
    const bool is_last_look = has_ended.load(std::memory_order_acquire);
    if (consumer.pop(record)) return true;
    if (is_last_look) return false;
    std::this_thread::yield();
  }
}
