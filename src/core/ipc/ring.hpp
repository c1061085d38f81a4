// A single-producer single-consumer ring of fixed-size records in shared memory.
//
//   RingHeader   [ published | pad to 64 ][ consumed | pad to 64 ]
//   records      [ 0 ][ 1 ] ... [ capacity - 1 ]        the capacity is a power of two
//
// One side pushes, the other pops; each may be in another process. A producer that is killed at any instruction leaves
// either a whole published record or none: the record is written first, and the counter that makes it visible is stored
// afterwards. There are no locks, so no process can die while it holds one.
//
// The counters only increase and wrap around at 2^32; only their differences are used.
//
// A ring wakes no thread (see doorbell.hpp), and is not safe with two producers or two consumers.
//
// Comments such as `edge "publish"` name the pair of memory accesses in the models (formal/README.md).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace remuda {

struct RingHeader {
  alignas(64) std::atomic<std::uint32_t> published;  // Written by the producer only.
  alignas(64) std::atomic<std::uint32_t> consumed;   // Written by the consumer only.

  void reset() {  // Empties the ring. Neither end may be in use.
    published.store(0);
    consumed.store(0);
  }
};
static_assert(sizeof(RingHeader) == 128 && offsetof(RingHeader, consumed) == 64);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free, "shared memory needs address-free atomics");

template <class Record>
constexpr std::size_t ring_bytes(std::uint32_t capacity) {
  return sizeof(RingHeader) + capacity * sizeof(Record);
}

// The producer's end. `push` only writes; `publish` makes everything pushed so far visible at once.
template <class Record>
class RingProducer {
 public:
  RingProducer() = default;
  RingProducer(RingHeader* header, std::uint32_t capacity)
      : header_(header),
        records_(reinterpret_cast<Record*>(header + 1)),
        mask_(capacity - 1),
        next_(header->published.load(std::memory_order_relaxed)) {}

  bool full() const {
    // Acquire, the edge "consume" of the models in formal/: a place is rewritten only after the consumer has read it.
    return next_ - header_->consumed.load(std::memory_order_acquire) > mask_;
  }
  // Writes a record. The ring must not be full.
  void push(const Record& record) { records_[next_++ & mask_] = record; }

  // Returns the record pushed last, which the producer may still change; null once it is published.
  Record* unpublished() {
    bool visible = next_ == header_->published.load(std::memory_order_relaxed);  // relaxed: only the producer writes it
    return visible ? nullptr : &records_[(next_ - 1) & mask_];
  }

  // The store is the edge "publish" of the models in formal/.
  void publish() { header_->published.store(next_, std::memory_order_release); }

 private:
  RingHeader* header_ = nullptr;
  Record* records_ = nullptr;
  std::uint32_t mask_ = 0;
  std::uint32_t next_ = 0;
};

// The consumer's end.
template <class Record>
class RingConsumer {
 public:
  RingConsumer() = default;
  RingConsumer(RingHeader* header, std::uint32_t capacity)
      : header_(header),
        records_(reinterpret_cast<const Record*>(header + 1)),
        mask_(capacity - 1),
        next_(header->consumed.load(std::memory_order_relaxed)) {}

  bool empty() const {
    return next_ == header_->published.load(std::memory_order_acquire);  // the edge "publish" of the models in formal/
  }
  // Reads the next record, which stays in the ring until `consume`. Returns false if the ring is empty.
  bool front(Record& record) const {
    if (empty()) return false;
    record = records_[next_ & mask_];
    return true;
  }
  // Removes the record that `front` has read. The store is the edge "consume" of the models in formal/.
  void consume() { header_->consumed.store(++next_, std::memory_order_release); }

  bool pop(Record& record) {
    if (!front(record)) return false;
    consume();
    return true;
  }

 private:
  RingHeader* header_ = nullptr;
  const Record* records_ = nullptr;
  std::uint32_t mask_ = 0;
  std::uint32_t next_ = 0;
};

}  // namespace remuda
