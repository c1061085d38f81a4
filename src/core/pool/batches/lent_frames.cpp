#include "pool/batches/lent_frames.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace remuda {

namespace {

constexpr char kLease[] = "remuda.Lease";

void end_lease(PyObject* capsule) { delete static_cast<Lease*>(PyCapsule_GetPointer(capsule, kLease)); }

}  // namespace

nb::object as_base(Lease lease) {
  auto owned = std::make_unique<Lease>(std::move(lease));
  nb::object base = nb::steal(PyCapsule_New(owned.get(), kLease, end_lease));
  if (!base.is_valid()) nb::raise_python_error();
  owned.release();
  return base;
}

std::shared_ptr<Arena> arena_of(nb::handle array) {
  PyObject* base = array.ptr();
  while (base != nullptr && PyArray_Check(base)) base = PyArray_BASE(reinterpret_cast<PyArrayObject*>(base));
  if (base == nullptr || PyCapsule_IsValid(base, kLease) == 0) return nullptr;
  return static_cast<Lease*>(PyCapsule_GetPointer(base, kLease))->arena;
}

LentFrame::LentFrame(std::shared_ptr<Arena> arena, std::shared_ptr<FrameBook> book, std::uint32_t frame,
                     std::uint32_t first_row, std::uint32_t rows)
    : first_row_(first_row), rows_(rows) {
  auto held = std::make_shared<HeldFrame>(std::move(book), frame);
  held_ = held.get();
  base_ = as_base({std::move(arena), std::move(held)});
}

nb::object LentFrame::view(const std::vector<Column>& columns, std::size_t number) {
  MadeArray before;  // the replaced array, if any; freed only after the lock is released
  const nb::ft_lock_guard lock(mutex_);
  if (views_.empty()) views_.resize(columns.size());
  MadeArray& view = views_[number];
  const Column& column = columns[number];
  const auto axes = static_cast<int>(column.shape().size());
  if (view.is(column.descr(), rows_, axes, column.shape().data()) && view.data() == column.row(first_row_))
    return view.object();
  nb::object array = column.view(first_row_, rows_, base_);
  if (!view.is_there()) ++made_;
  before = std::exchange(view, MadeArray(array));
  return array;
}

// Each array and this object have a reference to the lease, and this object has one to each array. Any further
// reference means that the frame is held.
std::optional<bool> LentFrame::is_held() const {
  const nb::ft_lock_guard lock(mutex_);
  const auto of_lease = references(base_);
  if (of_lease && *of_lease != 1 + made_) return true;
  bool is_known = of_lease.has_value();
  for (const MadeArray& view : views_) {
    const std::optional<bool> is_held = view.is_held();
    if (is_held == true) return true;
    is_known &= is_held.has_value();
  }
  return is_known ? std::optional(false) : std::nullopt;
}

bool LentFrame::is_weakly_referenced() const {
  const nb::ft_lock_guard lock(mutex_);
  return std::any_of(views_.begin(), views_.end(), [](const MadeArray& view) { return view.is_weakly_referenced(); });
}

void LentFrames::take_back() {
  std::vector<Frame> ended;
  for (std::uint64_t left = lent_; left != 0; left &= left - 1) {
    const auto number = static_cast<std::size_t>(std::countr_zero(left));
    Frame& frame = frames_[number];
    const std::optional<bool> is_held = frame->is_held();
    if (is_held == true) continue;
    lent_ &= ~(std::uint64_t{1} << number);
    if (!is_held || frame->is_weakly_referenced())
      ended.push_back(std::exchange(frame, nullptr));
    else
      frame->take_back();
  }
}

}  // namespace remuda
