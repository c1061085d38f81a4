// The hub's making of batches: views of a leased frame where possible, else copies.
#include <algorithm>
#include <cstring>

#include "pool/hub.hpp"

namespace remuda {

namespace {

constexpr std::uint32_t kEverything = 0xffffffff;
constexpr std::size_t kWorthReleasing = 1 << 16;  // bytes to copy that are worth releasing the GIL for

// Copies the rows of one column, in the order given, into a new array.
nb::object gather(const Column& column, const std::vector<std::uint32_t>& rows) {
  nb::object array = column.empty(static_cast<std::uint32_t>(rows.size()));
  auto* to = static_cast<std::byte*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(array.ptr())));
  auto copy = [&] {
    for (std::uint32_t row : rows) {
      std::memcpy(to, column.row(row), column.row_bytes());
      to += column.row_bytes();
    }
  };
  if (column.row_bytes() * rows.size() < kWorthReleasing) {
    copy();
  } else {
    nb::gil_scoped_release release;
    copy();
  }
  return array;
}

}  // namespace

std::vector<Hub::Ready> Hub::remove_ready(Part& part, std::uint32_t limit) {
  std::vector<Ready> taken;
  std::uint32_t count = 0;
  if (limit >= part.ready_slots) {
    taken.swap(part.ready);
    count = part.ready_slots;
  }
  auto next = part.ready.begin();
  while (count < limit && next != part.ready.end()) {
    Ready& run = taken.emplace_back(*next);
    run.count = std::min(run.count, limit - count);
    count += run.count;
    if (run.count == next->count) {
      ++next;
    } else {  // the rest of it stays
      next->slot += run.count;
      next->row += run.count;
      next->count -= run.count;
    }
  }
  part.ready.erase(part.ready.begin(), next);
  part.ready_slots -= count;
  for (const Ready& run : taken)
    for (std::uint32_t i = 0; i < run.count; ++i) slots_[run.slot + i].state = SlotState::kIdle;
  return taken;
}

// A leasable frame all of whose rows have been dealt with goes back to the book.
void Hub::rows_done(Part& part, std::uint32_t row, std::uint32_t count) {
  std::uint32_t frame = row / plan_.slots;
  part.rows_out[frame] -= count;
  if (part.rows_out[frame] == 0 && frame != 0) part.book->give_back(frame - 1);
}

bool Hub::is_whole_frame(const Part& part, const std::vector<Ready>& taken) const {
  if (taken.empty()) return false;
  std::uint32_t frame = taken[0].row / plan_.slots, count = 0;
  for (const Ready& run : taken) {
    if (run.row / plan_.slots != frame) return false;
    count += run.count;
  }
  return frame != 0 && count == part.slots.size();
}

void Hub::drop_ready(std::uint32_t index) {
  Part& part = parts_.at(index);
  const std::vector<Ready> dropped = remove_ready(part, kEverything);
  const std::vector<std::uint32_t> ended = note_ends(dropped);
  for (const Ready& run : dropped) rows_done(part, run.row, run.count);
  if (!ended.empty()) dispatch(Op::kReset, ended, nb::none(), part);
}

// Where the end of an episode concerns us: remembers it, and returns the slots that reset in the background.
std::vector<std::uint32_t> Hub::note_ends(const std::vector<Ready>& taken) {
  std::vector<std::uint32_t> resetting;
  const bool in_background = autoreset_ == Autoreset::kBackground;
  if (autoreset_ == Autoreset::kSameStep || (!seating_.has_spares() && !in_background)) return resetting;
  const auto* terminated = reinterpret_cast<const bool*>(columns_[kTerminated].row(0));
  const auto* truncated = reinterpret_cast<const bool*>(columns_[kTruncated].row(0));
  for (const Ready& run : taken) {
    for (std::uint32_t i = 0; i < run.count; ++i) {
      if (!terminated[run.row + i] && !truncated[run.row + i]) continue;
      slots_[run.slot + i].over = true;
      if (in_background) resetting.push_back(run.slot + i);
    }
  }
  return resetting;
}

nb::tuple Hub::take(std::uint32_t limit, bool by_slot, std::uint32_t index) {
  Part& part = parts_.at(index);
  std::vector<Ready> taken = remove_ready(part, limit);
  const bool whole = is_whole_frame(part, taken);
  // By slot is the order of a frame, and what arrived in which order is chance.
  auto is_before = [](const Ready& a, const Ready& b) { return a.slot < b.slot; };
  if ((whole || by_slot) && !std::is_sorted(taken.begin(), taken.end(), is_before))
    std::sort(taken.begin(), taken.end(), is_before);

  Taken batch = describe(taken);
  // The last free frame is never given away: without it the next command to all would have no row.
  if (whole && part.book->any_free()) {
    lend(part, taken[0].row / plan_.slots, batch);
  } else {
    copy(part, taken, batch);
  }
  const std::vector<std::uint32_t> ended = note_ends(taken);
  if (!ended.empty()) dispatch(Op::kReset, ended, nb::none(), part);
  return nb::make_tuple(whole ? nb::object(nb::none()) : slots_of(taken), none_or(batch.columns), none_or(batch.finals),
                        none_or(batch.infos), none_or(batch.extras));
}

std::optional<nb::tuple> Hub::finish(std::uint32_t wanted, std::uint32_t part) {
  const std::uint32_t there = pending(part);
  if (there == 0 || needs_attention()) return std::nullopt;
  if (!wait(wanted == 0 ? there : std::min(wanted, there), -1, part) || needs_attention() || has_unheard())
    return std::nullopt;
  return take(kEverything, false, part);
}

Hub::Taken Hub::describe(const std::vector<Ready>& taken) const {
  Taken batch;
  const auto* mask = reinterpret_cast<const std::uint64_t*>(columns_[kInfoMask].row(0));
  std::size_t position = 0;
  for (const Ready& run : taken) {
    const auto* end = mask + run.row + run.count;
    batch.has_infos = batch.has_infos || std::any_of(mask + run.row, end, [](std::uint64_t m) { return m != 0; });
    batch.has_finals = batch.has_finals || (run.flags & kHasFinal);
    if (run.flags != 0) {
      if (!batch.extras.is_valid()) batch.extras = nb::dict();
      nb::borrow<nb::dict>(batch.extras)[nb::int_(position)] =
          nb::make_tuple(run.flags, none_or(run.parts), none_or(run.terminal));
    }
    position += run.count;
  }
  return batch;
}

void Hub::lend(Part& part, std::uint32_t frame, Taken& batch) {
  part.rows_out[frame] = 0;  // the lease gives the frame back
  nb::object lease = nb::cast(new Lease(arena_, part.book, frame - 1), nb::rv_policy::take_ownership);
  const std::uint32_t first = frame * plan_.slots + slots_[part.slots[0]].position;
  const auto count = static_cast<std::uint32_t>(part.slots.size());
  fill(batch, [&](const Column& column) { return column.view(first, count, lease); });
}

void Hub::copy(Part& part, const std::vector<Ready>& taken, Taken& batch) {
  std::vector<std::uint32_t> rows;
  for (const Ready& run : taken)
    for (std::uint32_t i = 0; i < run.count; ++i) rows.push_back(run.row + i);
  fill(batch, [&](const Column& column) { return gather(column, rows); });
  for (const Ready& run : taken) rows_done(part, run.row, run.count);
}

template <class MakeArray>
void Hub::fill(Taken& batch, MakeArray make_array) {
  auto arrays = [&](const std::vector<Column>& columns) {
    nb::list arrays;
    for (const Column& column : columns) arrays.append(make_array(column));
    return nb::object(arrays);
  };
  batch.columns = arrays(columns_);
  if (batch.has_finals) batch.finals = arrays(final_columns_);
  if (batch.has_infos) batch.infos = arrays(info_columns_);
}

nb::object Hub::slots_of(const std::vector<Ready>& taken) {
  npy_intp count = 0;
  for (const Ready& run : taken) count += run.count;
  nb::object slots = nb::steal(PyArray_SimpleNew(1, &count, NPY_INT64));
  if (!slots.is_valid()) nb::raise_python_error();
  auto* ids = static_cast<npy_int64*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(slots.ptr())));
  for (const Ready& run : taken)
    for (std::uint32_t i = 0; i < run.count; ++i) *ids++ = run.slot + i;
  return slots;
}

nb::list Hub::meters() const {
  nb::list meters;
  for (const Port& port : ports_)
    meters.append(nb::make_tuple(port.meter->steps.load(std::memory_order_relaxed),
                                 port.meter->busy_ns.load(std::memory_order_relaxed),
                                 port.meter->cpu_ns.load(std::memory_order_relaxed)));
  return meters;
}

}  // namespace remuda
