#include "pool/batches/batch.hpp"

namespace remuda {

Batch::Batch(nb::object source, std::shared_ptr<const BatchColumns> columns, nb::object lease, std::uint32_t first,
             nb::object env_ids, bool finals, bool infos, nb::object extras)
    : source_(std::move(source)),
      columns_(std::move(columns)),
      lease_(std::move(lease)),
      extras_(std::move(extras)),
      first_(first),
      count_(static_cast<std::uint32_t>(PyArray_SIZE(reinterpret_cast<PyArrayObject*>(env_ids.ptr())))),
      info_columns_(infos ? static_cast<std::uint32_t>(columns_->infos.size()) : 0),
      has_finals_(finals),
      has_infos_(infos),
      obs_is_array_(columns_->obs_is_array) {
  attributes_[kEnvIds] = std::move(env_ids);
}

Batch::Batch(nb::object source, nb::object env_ids, Arrays arrays, nb::object extras, bool obs_is_array,
             nb::object valid)
    : source_(std::move(source)),
      arrays_(std::move(arrays)),
      extras_(std::move(extras)),
      valid_(std::move(valid)),
      count_(static_cast<std::uint32_t>(nb::len(env_ids))),
      has_finals_(arrays_.finals.is_valid()),
      has_infos_(arrays_.infos.is_valid()),
      obs_is_array_(obs_is_array) {
  attributes_[kEnvIds] = std::move(env_ids);
}

Batch::Batch(nb::object source, std::shared_ptr<const BatchColumns> columns, nb::object lease, std::uint32_t first,
             Arrays arrays, nb::object extras, nb::object env_ids, nb::object valid)
    : source_(std::move(source)),
      columns_(std::move(columns)),
      lease_(std::move(lease)),
      arrays_(std::move(arrays)),
      extras_(std::move(extras)),
      valid_(std::move(valid)),
      first_(first),
      count_(static_cast<std::uint32_t>(nb::len(env_ids))),
      has_finals_(arrays_.finals.is_valid()),
      has_infos_(arrays_.infos.is_valid()),
      obs_is_array_(columns_->obs_is_array) {
  attributes_[kEnvIds] = std::move(env_ids);
}

nb::object Batch::column(std::size_t index) const {
  return lease_.is_valid() ? view(columns_->columns[index]) : nb::object(arrays_.columns[index]);
}

nb::object Batch::get(Attribute attribute) {
  nb::object& made = attributes_[attribute];
  if (made.is_valid()) return made;
  if (attribute != kObs)
    made = column(static_cast<std::size_t>(attribute));
  else if (obs_is_array_)
    made = column(BatchColumns::kFirstOfLeaves);
  return made;
}

nb::list Batch::leaves() const {
  nb::list leaves;
  const std::size_t count = lease_.is_valid() ? columns_->columns.size() : nb::len(arrays_.columns);
  for (std::size_t i = BatchColumns::kFirstOfLeaves; i < count; ++i) leaves.append(column(i));
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
  nb::list infos;
  for (std::uint32_t i = 0; i < info_columns_; ++i) infos.append(view(columns_->infos[i]));
  return infos;
}

int Batch::visit(visitproc visit, void* arg) const {
  for (const nb::object* one :
       {&source_, &lease_, &arrays_.columns, &arrays_.finals, &arrays_.computed, &arrays_.infos, &extras_, &valid_})
    Py_VISIT(one->ptr());
  for (const nb::object& one : attributes_) Py_VISIT(one.ptr());
  return 0;
}

void Batch::clear() {
  for (nb::object* one :
       {&source_, &arrays_.columns, &arrays_.finals, &arrays_.computed, &arrays_.infos, &extras_, &valid_})
    one->reset();
  for (nb::object& one : attributes_) one.reset();
}

}  // namespace remuda
