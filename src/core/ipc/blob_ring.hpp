// A ring of bytes beside a ring of records, for data without a fixed size: pickled infos, unusual observations.
//
// A record states whether a blob belongs to it, and publishing the record publishes its blob too. The blob ring
// therefore shares only one counter: the number of bytes that the reader has consumed. Blobs are read in the order of
// their records. A blob that does not fit at the moment is refused and travels through a socket instead. The writer
// never waits here, so it cannot deadlock with a reader that is itself waiting.
//
//   blob   [ parts : u64 ][ size of part 0 : u64 ] ... [ part 0 ][ part 1 ] ...
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <vector>

namespace remuda {

struct BlobHeader {
  alignas(64) std::atomic<std::uint64_t> consumed;  // the number of bytes read; only the reader writes it
};
static_assert(sizeof(BlobHeader) == 64);

using Bytes = std::span<const std::byte>;

class BlobWriter {
 public:
  BlobWriter() = default;
  BlobWriter(BlobHeader* header, std::uint64_t capacity)
      : header_(header), bytes_(reinterpret_cast<std::byte*>(header + 1)), capacity_(capacity) {}

  // Writes a blob. Returns the number of bytes written, or 0 if there is no room.
  std::uint64_t write(std::span<const Bytes> parts) {
    std::uint64_t total = sizeof(std::uint64_t) * (1 + parts.size());
    for (const Bytes& part : parts) total += part.size();
    // Acquire, paired with the release in `done`: bytes are overwritten only after they were read.
    const std::uint64_t unread = written_ - header_->consumed.load(std::memory_order_acquire);
    // More unread bytes than the capacity means that the reader's counter is corrupt.
    if (unread > capacity_ || total > capacity_ - unread) return 0;
    put_number(parts.size());
    for (const Bytes& part : parts) put_number(part.size());
    for (const Bytes& part : parts) put(part.data(), part.size());
    return total;
  }

 private:
  void put_number(std::uint64_t n) { put(reinterpret_cast<const std::byte*>(&n), sizeof n); }

  void put(const std::byte* data, std::uint64_t size) {
    std::uint64_t start = written_ % capacity_;
    std::uint64_t first = std::min(size, capacity_ - start);  // the number of bytes that fit before the end of the ring
    if (first != 0) std::memcpy(bytes_ + start, data, first);
    if (size != first) std::memcpy(bytes_, data + first, size - first);
    written_ += size;
  }

  BlobHeader* header_ = nullptr;
  std::byte* bytes_ = nullptr;
  std::uint64_t capacity_ = 0;
  std::uint64_t written_ = 0;
};

class BlobReader {
 public:
  BlobReader() = default;
  BlobReader(BlobHeader* header, std::uint64_t capacity)
      : header_(header), bytes_(reinterpret_cast<const std::byte*>(header + 1)), capacity_(capacity) {}

  // Returns the sizes of the next blob's parts. The caller then calls `get` once for each part, then `done`. The other
  // process may have corrupted the memory. For sizes that no writer can have written, throws std::length_error.
  std::vector<std::uint64_t> sizes() {
    std::uint64_t count;
    get(reinterpret_cast<std::byte*>(&count), sizeof count);
    std::uint64_t room = capacity_ / sizeof(std::uint64_t);
    if (count >= room) throw std::length_error("a blob with more parts than there is room for");
    std::vector<std::uint64_t> sizes(count);
    if (count != 0) get(reinterpret_cast<std::byte*>(sizes.data()), count * sizeof(std::uint64_t));
    room = capacity_ - sizeof(std::uint64_t) * (1 + count);
    for (std::uint64_t size : sizes) {
      if (size > room) throw std::length_error("a blob that is longer than its ring");
      room -= size;
    }
    return sizes;
  }
  void get(std::byte* data, std::uint64_t size) {
    std::uint64_t start = read_ % capacity_;
    std::uint64_t first = std::min(size, capacity_ - start);
    if (first != 0) std::memcpy(data, bytes_ + start, first);
    if (size != first) std::memcpy(data + first, bytes_, size - first);
    read_ += size;
  }
  void done() { header_->consumed.store(read_, std::memory_order_release); }

 private:
  BlobHeader* header_ = nullptr;
  const std::byte* bytes_ = nullptr;
  std::uint64_t capacity_ = 0;
  std::uint64_t read_ = 0;
};

}  // namespace remuda
