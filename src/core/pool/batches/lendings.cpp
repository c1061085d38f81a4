#include "pool/batches/lendings.hpp"

#include "os/platform.hpp"

#if REMUDA_LINUX
#include <pthread.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <mutex>
#include <utility>

namespace remuda {

// Handles forks of this process for all pools: copies the frames and rollouts that are lent to the program.
class Forks {
 public:
  static Forks& all() {
    static auto* forks = new Forks;  // never destroyed, because other threads may fork while the process ends
    return *forks;
  }

  template <class Change>
  void change(Change change) {
    std::lock_guard lock(mutex_);
    change(lendings_);
  }

 private:
  struct Copy {
    std::shared_ptr<Arena> arena;
    std::byte* copy;  // Null if no memory is held, or if `shared` is true.
    // Whether memory for the copy ran out. If so, the child keeps the shared memory.
    bool shared;
  };

  Forks() {
    pthread_atfork([] { all().prepare(); }, [] { all().go_on(); }, [] { all().begin_child(); });
  }

  // Runs before a fork. Copies now, because after the fork the pool may overwrite the memory before the child has
  // copied it. Keeps the lock until the fork is over.
  void prepare() {
    mutex_.lock();
    std::erase_if(lendings_, [](const auto& one) { return one->arena_.expired(); });
    for (const auto& lendings : lendings_) {
      std::shared_ptr<Arena> arena = lendings->arena_.lock();
      if (!arena) continue;
      Copy copy{std::move(arena), nullptr, false};
      if (lendings->any_taken()) {
        copy.copy = copy.arena->reserve_copy();
        copy.shared = copy.copy == nullptr;
        if (!copy.shared) lendings->copy_taken(*copy.arena, copy.copy);
      }
      copies_.push_back(std::move(copy));
    }
  }

  void go_on() {
    for (const Copy& copy : copies_)
      if (copy.copy != nullptr) copy.arena->drop_copy(copy.copy);
    copies_.clear();
    mutex_.unlock();
  }

  void begin_child() {
    for (const Copy& copy : copies_) {
      if (!copy.shared) copy.arena->become(copy.copy);
      copy.arena->close_fd();
    }
    copies_.clear();
    // The child needs no lendings: its memory is private, and its own forks copy it like any other memory.
    lendings_.clear();
    mutex_.unlock();
  }

  std::mutex mutex_;
  std::vector<std::shared_ptr<Lendings>> lendings_;
  std::vector<Copy> copies_;  // used between the handlers of one fork
};

std::shared_ptr<Lendings> Lendings::make(const std::shared_ptr<Arena>& arena, std::uint32_t slots) {
  std::shared_ptr<Lendings> lendings(new Lendings(arena, slots));
  Forks::all().change([&](auto& all) {
    std::erase_if(all, [](const auto& one) { return one->arena_.expired(); });
    all.push_back(lendings);
  });
  return lendings;
}

void Lendings::add_column(std::byte* at, std::size_t row_bytes, std::uint32_t first_row) {
  Forks::all().change([&](auto&) { columns_.push_back({at, row_bytes, first_row}); });
}

void Lendings::add_book(const std::shared_ptr<FrameBook>& book, std::uint32_t first, std::uint32_t count) {
  Forks::all().change([&](auto&) {
    std::erase_if(books_, [](const Book& one) { return one.book.expired(); });
    books_.push_back({book, first, count});
  });
}

void Lendings::add_rollout(const std::shared_ptr<Rollout>& rollout) {
  Forks::all().change([&](auto&) {
    std::erase_if(rollouts_, [](const auto& one) { return one.expired(); });
    rollouts_.push_back(rollout);
  });
}

bool Lendings::any_taken() const {
  if (std::any_of(rollouts_.begin(), rollouts_.end(), [](const auto& one) { return !one.expired(); })) return true;
  return std::any_of(books_.begin(), books_.end(), [](const Book& one) {
    const auto book = one.book.lock();
    return book && book->taken() != 0;
  });
}

void Lendings::copy_taken(const Arena& arena, std::byte* copy) const {
  const auto copy_rows = [&](std::size_t first, std::size_t count) {
    for (const Rows& rows : columns_) {
      if (first < rows.first) continue;
      const std::byte* from = rows.at + (first - rows.first) * rows.bytes;
      std::memcpy(copy + (from - arena.base()), from, count * rows.bytes);
    }
  };
  for (const Book& one : books_) {
    const auto book = one.book.lock();
    for (std::uint64_t taken = book ? book->taken() : 0; taken != 0; taken &= taken - 1) {
      const std::size_t frame = static_cast<std::size_t>(std::countr_zero(taken)) + 1;  // frame 0 is never lent
      copy_rows(frame * slots_ + one.first, one.count);
    }
  }
  for (const auto& one : rollouts_)
    if (const auto rollout = one.lock()) copy_rows(rollout->first_row(), rollout->rows());
}

}  // namespace remuda

#else  // no memory is shared, because there are no worker processes

namespace remuda {

std::shared_ptr<Lendings> Lendings::make(const std::shared_ptr<Arena>& arena, std::uint32_t slots) {
  return std::shared_ptr<Lendings>(new Lendings(arena, slots));
}
void Lendings::add_column(std::byte*, std::size_t, std::uint32_t) {}
void Lendings::add_book(const std::shared_ptr<FrameBook>&, std::uint32_t, std::uint32_t) {}
void Lendings::add_rollout(const std::shared_ptr<Rollout>&) {}

}  // namespace remuda

#endif
