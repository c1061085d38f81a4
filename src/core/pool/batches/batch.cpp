#include "pool/batches/batch.hpp"

#include <algorithm>
#include <cstring>

#include "ipc/protocol.hpp"
#include "python/arrays.hpp"

namespace remuda {

namespace {

// Returns whether a row has values outside the columns. `extra`: the row's entry in `extras`, see `Hub::take`.
bool has_matter(nb::handle extra) {
  return PyTuple_GetItem(extra.ptr(), 1) != Py_None || PyTuple_GetItem(extra.ptr(), 2) != Py_None;
}

bool has_final(nb::handle extra) {
  return (nb::cast<std::uint32_t>(nb::handle(PyTuple_GetItem(extra.ptr(), 0))) & kHasFinal) != 0;
}

}  // namespace

Batch::Batch(nb::object source, std::shared_ptr<const BatchColumns> columns, nb::object lease,
             std::shared_ptr<LentFrame> frame, std::uint32_t first, nb::object env_ids, bool finals, bool infos,
             nb::object extras)
    : source_(std::move(source)),
      columns_(std::move(columns)),
      lease_(std::move(lease)),
      frame_(std::move(frame)),
      extras_(std::move(extras)),
      first_(first),
      count_(static_cast<std::uint32_t>(PyArray_SIZE(as_array(env_ids)))),
      info_columns_(infos ? static_cast<std::uint32_t>(columns_->infos.size()) : 0),
      has_finals_(finals),
      has_infos_(infos),
      obs_is_array_(columns_->obs_is_array) {
  attributes_[kEnvIds] = std::move(env_ids);
}

Batch::Batch(nb::object source, nb::object env_ids, Arrays arrays, nb::object extras, bool obs_is_array)
    : source_(std::move(source)),
      arrays_(std::move(arrays)),
      extras_(std::move(extras)),
      count_(static_cast<std::uint32_t>(nb::len(env_ids))),
      has_finals_(arrays_.finals.is_valid()),
      has_infos_(arrays_.infos.is_valid()),
      obs_is_array_(obs_is_array) {
  attributes_[kEnvIds] = std::move(env_ids);
}

nb::object Batch::column(std::size_t index) const {
  if (frame_ != nullptr) return frame_->view(columns_->columns, index);
  return lease_.is_valid() ? view(columns_->columns[index]) : nb::object(arrays_.columns[index]);
}

nb::object Batch::get(Attribute attribute) {
  nb::object& made = attributes_[attribute];
  if (made.is_valid()) return made;
  if (attribute != kObs)
    made = column(static_cast<std::size_t>(attribute));
  else if (obs_is_array_)
    made = column(kFirstLeafWithoutInfo);
  return made;
}

nb::list Batch::leaves() const {
  nb::list leaves;
  const std::size_t count = lease_.is_valid() ? columns_->columns.size() : nb::len(arrays_.columns);
  for (std::size_t i = kFirstLeafWithoutInfo; i < count; ++i) leaves.append(column(i));
  return leaves;
}

nb::object Batch::finals() const {
  if (!has_finals_) return nb::none();
  if (arrays_.finals.is_valid()) return arrays_.finals;
  nb::list finals;
  for (const Column& column : columns_->finals) finals.append(view(column));
  return finals;
}

nb::object Batch::computed() const {
  if (!lease_.is_valid()) return arrays_.computed.is_valid() ? arrays_.computed : nb::object(nb::none());
  if (columns_->computed.empty()) return nb::none();
  nb::list computed;
  for (const Column& column : columns_->computed) computed.append(view(column));
  return computed;
}

nb::object Batch::infos() const {
  if (!has_infos_) return nb::none();
  if (arrays_.infos.is_valid()) return arrays_.infos;
  const nb::ft_object_guard guard(columns_->info_reader);
  nb::list infos;
  for (std::uint32_t i = 0; i < info_columns_; ++i) infos.append(view(columns_->infos[i]));
  return infos;
}

// Returns the rows of a flag column: from its array if the array exists (the caller may have changed it), else from the
// frame.
const npy_bool* Batch::flags(Attribute attribute) {
  if (!lease_.is_valid() || attributes_[attribute].is_valid()) return data_of<npy_bool>(get(attribute));
  return reinterpret_cast<const npy_bool*>(columns_->columns[attribute].row(first_));
}

nb::object Batch::done() {
  nb::object array = new_vector(count_, NPY_BOOL);
  const auto *first = flags(kTerminated), *second = flags(kTruncated);
  auto* to = data_of<npy_bool>(array);
  for (std::uint32_t i = 0; i < count_; ++i) to[i] = (first[i] | second[i]) != 0;
  return array;
}

nb::object Batch::copy_rewards() {
  if (!lease_.is_valid() || attributes_[kReward].is_valid()) return get(kReward).attr("copy")();
  const Column& column = columns_->columns[kReward];
  nb::object array = column.array(count_);
  std::memcpy(data_of<std::byte>(array), column.row(first_), column.row_bytes() * count_);
  return array;
}

// Returns whether `reader` can read all infos from the columns. Returns false if a terminal observation is not an
// array.
bool Batch::columns_have_infos(const InfoReader& reader) const {
  if (!lease_.is_valid() && arrays_.columns[kInfoMask].is_none()) return false;  // a copied batch without infos
  if (!extras_.is_valid()) return true;
  static const nb::handle kVectorSize = PyUnicode_InternFromString("vector_size");
  if (reader.has_final_obs() || !nb::object(source_.attr(kVectorSize)).is_none()) return false;
  bool any_final = false;
  for (auto [row, extra] : nb::borrow<nb::dict>(extras_)) {
    if (has_matter(extra)) return false;
    any_final |= has_final(extra);
  }
  if (!any_final) return true;
  // Each terminal observation must be an array, and not a number or several leaves.
  if (!obs_is_array_ || !has_finals_) return false;
  if (!arrays_.finals.is_valid()) return !columns_->finals[0].shape().empty();
  return PyArray_NDIM(as_array(nb::object(arrays_.finals[0]))) > 1;
}

InfoRows Batch::info_rows(const InfoReader& reader) const {
  const bool is_lent = has_infos_ && !arrays_.infos.is_valid();
  const std::size_t there = is_lent ? info_columns_ : has_infos_ ? nb::len(arrays_.infos) : 0;
  const std::size_t columns = std::min(there, reader.num_columns());
  const auto* masks = lease_.is_valid()
                          ? reinterpret_cast<const std::uint64_t*>(columns_->columns[kInfoMask].row(first_))
                          : data_of<std::uint64_t>(arrays_.columns[kInfoMask]);
  InfoRows rows(masks, count_, columns);
  for (std::size_t i = 0; i < columns; ++i) {
    if (is_lent)
      rows.add(columns_->infos[i], first_);
    else
      rows.add(nb::object(arrays_.infos[i]));
  }
  return rows;
}

// Returns a dict from rows to copies of terminal observations; None if no row has one.
nb::object Batch::terminal_observations() const {
  if (!extras_.is_valid()) return nb::none();
  nb::dict observations;
  for (auto [key, extra] : nb::borrow<nb::dict>(extras_)) {
    if (!has_final(extra)) continue;
    const auto row = nb::cast<std::uint32_t>(key);
    if (!arrays_.finals.is_valid())
      observations[key] = columns_->finals[0].read(first_ + row);
    else
      observations[key] = nb::object(arrays_.finals[0])[row].attr("copy")();
  }
  return nb::len(observations) == 0 ? nb::object(nb::none()) : nb::object(observations);
}

// Calls `read` with the reader of infos, which it locks. Returns null if some infos are not in the columns.
template <class Read>
nb::object Batch::from_columns(Read read) const {
  const bool is_known = columns_ != nullptr && columns_->info_reader.is_valid();
  const nb::object held = is_known ? columns_->info_reader : nb::object(source_.attr("info_reader"));
  const nb::ft_object_guard guard(held);
  InfoReader& reader = *nb::inst_ptr<InfoReader>(held);
  if (!columns_have_infos(reader)) return {};
  return read(reader);
}

nb::object Batch::info_dicts() const {
  if (!has_infos()) {
    nb::list none;
    for (std::uint32_t i = 0; i < count_; ++i) none.append(nb::dict());
    return none;
  }
  return from_columns([this](const InfoReader& reader) {
    nb::list dicts = reader.infos(info_rows(reader));
    const nb::object terminal = terminal_observations();
    if (terminal.is_none()) return dicts;
    for (auto [row, obs] : nb::borrow<nb::dict>(terminal)) {
      nb::dict info = nb::borrow<nb::dict>(dicts[nb::cast<std::size_t>(row)]);
      if (!info.contains("final_info")) info["final_info"] = nb::dict();
      info["final_obs"] = obs;
    }
    return dicts;
  });
}

nb::object Batch::stacked_infos() const {
  if (!has_infos()) return nb::dict();
  return from_columns([this](InfoReader& reader) { return reader.stack(info_rows(reader), terminal_observations()); });
}

}  // namespace remuda
