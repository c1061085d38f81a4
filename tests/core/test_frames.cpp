// Tests that a frame has one holder at a time, and that any thread can give it back.
#include <set>
#include <thread>
#include <vector>

#include "check.hpp"
#include "pool/batches/frames.hpp"
#include "random.hpp"
#include "shared_ring.hpp"

using namespace remuda;

TEST(a_book_has_1_to_64_frames) {
  CHECK_THROWS(std::invalid_argument, FrameBook(0));
  CHECK_THROWS(std::invalid_argument, FrameBook(65));
  for (std::uint32_t frames : {1, 2, 63, 64}) {
    FrameBook book(frames);
    std::set<std::uint32_t> taken;
    while (book.any_free()) {
      std::uint32_t frame = book.take();
      CHECK(frame < frames);
      CHECK(taken.insert(frame).second);
    }
    CHECK_EQ(taken.size(), frames);
  }
}

TEST(a_frame_given_back_is_there_again) {
  Random random(7);
  for (std::uint32_t frames : {1, 5, 64}) {
    FrameBook book(frames);
    std::vector<std::uint32_t> out;
    for (int turn = 0; turn < 2000; ++turn) {
      CHECK_EQ(book.any_free(), out.size() < frames);
      if (book.any_free() && random.coin()) {
        std::uint32_t frame = book.take();
        for (std::uint32_t other : out) CHECK(frame != other);
        out.push_back(frame);
      } else if (!out.empty()) {
        std::swap(out[random.below(out.size())], out.back());
        book.give_back(out.back());
        out.pop_back();
      }
    }
  }
}

TEST(books_of_one_size_have_the_same_reserve) {
  for (std::uint32_t frames : {1, 2, 63, 64})
    for (std::uint32_t frame = 0; frame < frames; ++frame)
      CHECK_EQ(FrameBook(frames).is_reserve(frame), frame == frames - 1);
}

TEST(what_is_held_of_earlier_books_is_not_free) {
  auto first = std::make_shared<FrameBook>(2), second = std::make_shared<FrameBook>(2, std::vector{first});
  first->take();
  CHECK(!first->all_back() && second->all_back());
  CHECK_EQ(second->take(), 1u);
  CHECK(!second->any_free());
  first->give_back(0);
  CHECK(second->any_free() && first->all_back() && !second->all_back());
}

TEST(a_lease_gives_its_frame_back_and_keeps_arena_and_book_alive) {
  auto arena = Arena::create(4096);
  auto book = std::make_shared<FrameBook>(1);
  std::weak_ptr<Arena> arena_seen = arena;
  std::weak_ptr<FrameBook> book_seen = book;
  {
    FrameLease lease(arena, book, book->take());
    CHECK(!book->any_free());
  }
  CHECK(book->any_free());

  auto lease = std::make_unique<FrameLease>(arena, book, book->take());
  arena.reset();
  book.reset();
  CHECK(!arena_seen.expired() && !book_seen.expired());
  lease.reset();
  CHECK(arena_seen.expired() && book_seen.expired());
}

TEST(a_frame_is_lent_again_by_the_same_lease) {
  auto book = std::make_shared<FrameBook>(1);
  auto lease = std::make_unique<FrameLease>(Arena::create(4096), book, book->take());
  lease->end();
  CHECK(book->any_free());
  const std::uint32_t frame = book->take();
  lease->end();  // has no effect: the lease has ended before
  CHECK(!book->any_free());
  book->give_back(frame);

  book->take();
  lease->begin();
  CHECK(!book->any_free());
  lease.reset();
  CHECK(book->any_free());
}

TEST(a_lease_that_has_ended_gives_nothing_back) {
  auto book = std::make_shared<FrameBook>(1);
  auto lease = std::make_unique<FrameLease>(Arena::create(4096), book, book->take());
  lease->end();
  book->take();  // lends the frame again
  lease.reset();
  CHECK(!book->any_free());
}

// The pool's thread takes and fills frames, and other threads read and drop them. If a frame became free too early, its
// reader would see it change. If a frame were lost, the test would hang until its timeout.
TEST(nobody_writes_a_frame_that_somebody_holds) {
  constexpr std::uint32_t kHolders = 3, kTurns = 4000;
  for (std::uint32_t frames : {1, 3, 64}) {
    auto arena = Arena::create(4096);
    auto book = std::make_shared<FrameBook>(frames);
    std::vector<std::vector<std::uint64_t>> contents(frames, std::vector<std::uint64_t>(16));
    std::vector<std::atomic<int>> hands(frames);

    struct Held {
      Lease* lease;
      std::uint32_t frame;
      std::uint64_t value;
    };
    std::vector<SharedRing<Held>> rings;
    for (std::uint32_t h = 0; h < kHolders; ++h) rings.emplace_back(8, 0xfffffffc);

    std::vector<std::thread> holders;
    for (std::uint32_t h = 0; h < kHolders; ++h) {
      holders.emplace_back([&, h] {
        Random random(h);
        auto consumer = rings[h].consumer();
        Held held;
        for (std::uint32_t i = 0; i < kTurns; ++i) {
          while (!consumer.pop(held)) std::this_thread::yield();
          idle(random.below(100));
          for (std::uint64_t word : contents[held.frame]) CHECK_EQ(word, held.value);
          CHECK_EQ(hands[held.frame].exchange(0, std::memory_order_relaxed), 1);
          delete held.lease;
        }
      });
    }
    std::vector<RingProducer<Held>> producers;
    for (auto& ring : rings) producers.push_back(ring.producer());
    for (std::uint64_t i = 0; i < kTurns * kHolders; ++i) {
      while (!book->any_free()) std::this_thread::yield();
      std::uint32_t frame = book->take();
      CHECK_EQ(hands[frame].exchange(1, std::memory_order_relaxed), 0);
      for (std::uint64_t& word : contents[frame]) word = i;
      auto& producer = producers[i % kHolders];
      while (producer.full()) std::this_thread::yield();
      producer.push({new FrameLease(arena, book, frame), frame, i});
      producer.publish();
    }
    for (std::thread& holder : holders) holder.join();
    for (std::uint32_t frame = 0; frame < frames; ++frame) {
      CHECK(book->any_free());
      book->take();
    }
    CHECK(!book->any_free());
  }
}
