// Tests that a frame has one holder at a time, and that any thread can give it back.
#include <thread>
#include <vector>

#include "check.hpp"
#include "pool/batches/frames.hpp"
#include "random.hpp"
#include "shared_ring.hpp"

using namespace remuda;

TEST(a_book_has_1_to_64_frames_and_each_is_taken_once_until_it_is_given_back) {
  Random random(7);
  for (std::uint32_t frames : {1, 2, 5, 63, 64}) {
    FrameBook book(frames);
    std::vector<std::uint32_t> out;
    for (int turn = 0; turn < 2000; ++turn) {
      CHECK_EQ(book.any_free(), out.size() < frames);
      if (book.any_free() && random.below(8) != 0) {
        const std::uint32_t frame = book.take();
        CHECK(frame < frames && book.is_reserve(frame) == (frame == frames - 1));
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

TEST(what_is_held_of_earlier_books_is_not_free) {
  auto first = std::make_shared<FrameBook>(2), second = std::make_shared<FrameBook>(2, std::vector{first});
  first->take();
  CHECK(!first->all_back() && second->all_back());
  CHECK_EQ(second->take(), 1u);
  CHECK(!second->any_free());
  first->give_back(0);
  CHECK(second->any_free() && first->all_back() && !second->all_back());
}

TEST(a_held_frame_is_given_back_once) {
  auto book = std::make_shared<FrameBook>(1);
  auto held = std::make_unique<HeldFrame>(book, book->take());
  held->end();  // has no effect before `begin`
  held->begin();
  CHECK(!book->any_free());
  held->end();
  CHECK(book->any_free());
  book->take();
  held->end();  // has no effect: it has ended before
  CHECK(!book->any_free());
  held->begin();
  held->end();
  CHECK(book->any_free());
  book->take();
  held.reset();  // gives nothing back, because it has ended
  CHECK(!book->any_free());
  held = std::make_unique<HeldFrame>(book, 0);
  held->begin();
  const std::weak_ptr<FrameBook> book_seen = std::exchange(book, nullptr);
  CHECK_EQ(book_seen.lock()->taken(), 1u);
  held.reset();
  CHECK(book_seen.expired());
}

// The pool's thread takes and fills frames, and other threads read and drop them. If a frame became free too early, its
// reader would see it change. If a frame were lost, the test would hang until its timeout.
TEST(nobody_writes_a_frame_that_somebody_holds) {
  constexpr std::uint32_t kHolders = 3, kTurns = 4000;
  for (std::uint32_t frames : {1, 3, 64}) {
    auto book = std::make_shared<FrameBook>(frames);
    std::vector<std::vector<std::uint64_t>> contents(frames, std::vector<std::uint64_t>(16));
    std::vector<std::atomic<int>> hands(frames);

    struct Held {
      HeldFrame* lender;
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
          delete held.lender;
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
      auto* const held = new HeldFrame(book, frame);
      held->begin();
      producer.push({held, frame, i});
      producer.publish();
    }
    for (std::thread& holder : holders) holder.join();
    CHECK(book->all_back());
  }
}
