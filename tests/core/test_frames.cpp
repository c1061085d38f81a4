// Tests that a frame has one holder at a time, and that any thread can give it back.
#include <thread>
#include <vector>

#include "check.hpp"
#include "pool/batches/frames.hpp"
#include "random.hpp"
#include "shared_ring.hpp"
#include "trials.hpp"

using namespace remuda;

TEST(a_held_frame_is_given_back_once) {
  const auto book = std::make_shared<FrameBook>(1);
  auto held = std::make_unique<HeldFrame>(book, book->take());
  held->begin();
  held->end();
  CHECK(book->any_free());
  book->take();
  held->end();  // has no effect: it has ended before
  held.reset();
  CHECK(!book->any_free());
}

// The pool's thread takes and fills frames, and other threads read and drop them. If a frame became free too early, its
// reader would see it change. If a frame were lost, the test would hang until its timeout.
TEST(nobody_writes_a_frame_that_somebody_holds) {
  constexpr std::uint32_t kHolders = 3;
  for (std::uint32_t frames : {1, 3, 64}) {
    auto book = std::make_shared<FrameBook>(frames);
    std::vector<std::vector<std::uint64_t>> contents(frames, std::vector<std::uint64_t>(16));
    std::vector<std::atomic<int>> hands(frames);
    std::atomic<bool> is_over{false};

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
        while (await_record(consumer, held, is_over)) {
          idle(random.below(100));
          for (std::uint64_t word : contents[held.frame]) CHECK_EQ(word, held.value);
          CHECK_EQ(hands[held.frame].exchange(0, std::memory_order_relaxed), 1);
          delete held.lender;
        }
      });
    }
    std::vector<RingProducer<Held>> producers;
    for (auto& ring : rings) producers.push_back(ring.producer());
    const Trials trials(12'000);
    for (std::uint64_t i = 0; trials.go_on(i); ++i) {
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
    is_over = true;
    for (std::thread& holder : holders) holder.join();
    CHECK(book->all_back());
  }
}
