#include "worker/result_rows.hpp"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "python/numpy_api.hpp"
#include "worker/digest.hpp"
#include "worker/env_results.hpp"

namespace remuda {

namespace {

nb::list as_list(const Objects& objects) {
  nb::list list;
  for (const nb::object& object : objects) list.append(object);
  return list;
}

void copy(std::span<const Column> columns, std::uint32_t from, std::uint32_t to) {
  for (const Column& column : columns) std::memcpy(column.row(to), column.row(from), column.row_bytes());
}

}  // namespace

ResultRows::ResultRows(const Arena& arena, const Plan& plan, const nb::object& hooks, nb::handle obs_nest,
                       std::vector<Column> obs, std::vector<Column> final_obs, std::vector<nb::object> functions,
                       std::vector<Column> computed, std::size_t step_columns)
    : hooks_(hooks),
      obs_nest_(obs_nest),
      obs_(std::move(obs)),
      final_obs_(std::move(final_obs)),
      functions_(std::move(functions)),
      computed_(std::move(computed)),
      num_state_columns_(computed_.size() - step_columns),
      reward_(arena.at<double>(plan.columns[kReward])),
      reward_width_(plan.column_bytes[kReward] / sizeof(double)),
      terminated_(arena.at<bool>(plan.columns[kTerminated])),
      truncated_(arena.at<bool>(plan.columns[kTruncated])),
      info_mask_(arena.at<std::uint64_t>(plan.columns[kInfoMask])) {}

Fit ResultRows::write_leaves(const std::vector<Column>& columns, nb::handle obs, std::uint32_t row, Objects& objects) {
  const Fit fit = obs_nest_.write(obs.ptr(), columns, row, objects);
  if (fit != Fit::kNone) return fit;
  // The observation needs a conversion or is invalid. The slow path converts it or raises a precise error.
  nb::object flat = hooks_.attr("flatten")(obs);
  std::size_t i = 0;
  for (nb::handle array : flat[0])
    if (!columns[i++].write(array.ptr(), row))
      throw nb::value_error("an observation leaf was not flattened to its column");
  objects.clear();
  for (nb::handle object : flat[1]) objects.push_back(nb::borrow(object));
  return Fit::kCast;
}

ResultRows::End ResultRows::keep_end(nb::handle obs, nb::handle info, std::uint32_t row) {
  End end;
  Objects objects;
  // Arrays that were written without a cast can be rebuilt from the observation columns. Any other terminal observation
  // (a Python int, a list, an array of another dtype) is kept as the env returned it, in info columns or pickled.
  bool is_kept = write_leaves(final_obs_, obs, row, objects) == Fit::kPlain;
  if (!is_kept && objects.empty()) {
    const auto columns = infos_.write_final_obs(obs, row);
    is_kept = columns.has_value();
    end.columns |= columns.value_or(0);
  }
  const auto columns = infos_.write_final_info(info, row);
  end.columns |= columns.value_or(0);
  if (is_kept && columns) return end;
  end.frozen = hooks_.attr("freeze")(is_kept ? nb::handle(Py_None) : obs, columns ? nb::handle(nb::dict()) : info);
  return end;
}

nb::object ResultRows::write_info(const Objects& objects, nb::handle info, const End& end, std::uint32_t row,
                                  std::uint32_t& flags) {
  nb::object rest;
  const bool is_empty = PyDict_GET_SIZE(info.ptr()) == 0;
  info_mask_[row] = end.columns | (is_empty ? 0 : infos_.write(info, row, rest));
  const nb::object wanted = infos_.take_wanted();
  if (objects.empty() && !rest.is_valid() && !end.frozen.is_valid() && !wanted.is_valid()) return nb::object();
  if (wanted.is_valid()) flags |= kHasNewKeys;
  return hooks_.attr("pack")(as_list(objects), none_or(rest), none_or(wanted), none_or(end.frozen));
}

void ResultRows::write_computed(nb::handle env, std::uint32_t row, std::vector<std::byte>& kept,
                                EnvCalls& calls) const {
  if (computed_.empty()) return;
  kept.clear();
  for (std::size_t i = 0; i < num_state_columns_; ++i) write_computed_column(i, env, row, calls);
  for (std::size_t i = 0; i < computed_.size(); ++i) {
    const Column& column = computed_[i];
    if (i < num_state_columns_)
      kept.insert(kept.end(), column.row(row), column.row(row) + column.row_bytes());
    else
      kept.resize(kept.size() + column.row_bytes());  // zeros
  }
}

void ResultRows::write_computed_column(std::size_t index, nb::handle env, std::uint32_t row, EnvCalls& calls) const {
  const Column& column = computed_[index];
  const nb::object value = compute(index, env, calls);
  // The value may be a list, have another dtype, or be invalid. The slow path converts it or raises a precise error.
  if (!column.write(value.ptr(), row) && !column.write(hooks_.attr("fit_computed")(index, value).ptr(), row))
    throw nb::value_error("a computed value was not made to fit its column");
}

std::uint64_t ResultRows::digest(const Objects& objects, nb::handle info, std::uint32_t row, bool is_step) const {
  Digest digest(hooks_);
  for (const Column& column : obs_) digest.add(column.row(row), column.row_bytes());
  for (const nb::object& object : objects) digest.add(object);
  if (!is_step || !ends_episode(row)) digest.add(info);
  if (!is_step) return digest.value();
  digest.add(reward_at(row), reward_width_ * sizeof(double));
  digest.add(&terminated_[row], sizeof(bool));
  digest.add(&truncated_[row], sizeof(bool));
  return digest.value();
}

void ResultRows::clear_reward(std::uint32_t row) const {
  std::fill_n(reward_at(row), reward_width_, 0.0);
  for (const Column& column : std::span(computed_).subspan(num_state_columns_))
    std::memset(column.row(row), 0, column.row_bytes());
}

nb::object ResultRows::compute(std::size_t index, nb::handle env, EnvCalls& calls) const {
  try {
    return calls.run([&, it = nb::borrow(env)] { return functions_[index](it); });
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_Exception)) throw;  // Ctrl-C is not an error of the function.
    hooks_.attr("raise_for_column")(index, value_of(error));
    throw;
  }
}

void ResultRows::repeat_computed(const std::vector<std::byte>& kept, std::uint32_t row) const {
  const std::byte* from = kept.data();
  for (const Column& column : computed_) {
    std::memcpy(column.row(row), from, column.row_bytes());
    from += column.row_bytes();
  }
}

void ResultRows::keep(std::uint32_t row, std::uint32_t kept, bool is_over) const {
  copy(obs_, row, kept);
  copy(std::span(computed_).first(num_state_columns_), row, kept);
  terminated_[kept] = is_over && terminated_[row];
  truncated_[kept] = is_over && truncated_[row];
}

}  // namespace remuda
