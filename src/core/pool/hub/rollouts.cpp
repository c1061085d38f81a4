// The hub's functions for rollouts. Steps fill a rollout frame after frame, in one piece of memory.
#include <stdexcept>

#include "pool/hub/hub.hpp"

namespace remuda {

nb::object Hub::begin_rollout(std::uint32_t first_part, std::uint32_t count, std::uint32_t steps, nb::object extras) {
  const std::uint32_t first_position = slots_.parts().at(first_part).first_position();
  std::uint32_t width = 0;
  for (std::uint32_t number = first_part; number < first_part + count; ++number) {
    if (slots_.parts().at(number).pending() != 0) throw std::logic_error("a rollout begins while nothing is pending");
    width += static_cast<std::uint32_t>(slots_.parts().at(number).slots().size());
  }
  const std::uint32_t base = plan_.first_rollout_row();
  std::shared_ptr<Rollout> rollout;
  {
    nb::gil_scoped_release release;  // reserving gigabytes takes a while
    rollout = std::make_shared<Rollout>(rollout_store_, base, first_position, width, steps);
  }
  lendings_->add_rollout(rollout);
  // An action is `width` rows before its result. In the action columns, the rows of rollouts begin at row `slots`; in
  // the other columns they begin at row `base`.
  const std::uint32_t shift = width + base - plan_.slots;
  nb::object views = nb::inst_alloc(nb::type<RolloutViews>());
  new (nb::inst_ptr<RolloutViews>(views))
      RolloutViews(rollout, columns_, actions_.columns(), rollout->first_row() + width - shift);
  nb::inst_mark_ready(views);
  for (std::uint32_t number = first_part; number < first_part + count; ++number) {
    keep_last_actions(slots_.parts().at(number).slots());  // must precede the release of the previous rollout
    slots_.parts().at(number).begin(rollout, shift);
    PartObjects& objects = objects_of_part(number);
    objects.lease = nb::borrow(nb::inst_ptr<RolloutViews>(views)->lease());
    objects.extras = extras;
  }
  return views;
}

bool Hub::end_rollout(const RolloutViews& rollout, std::uint32_t number) {
  if (!has_part(number) || !rollout.are_of(slots_.parts().at(number).rollout())) return false;
  end_rollout_of(number);
  return slots_.parts().at(number).is_filling();
}

void Hub::end_rollout_of(std::uint32_t number) {
  slots_.parts().at(number).end_rollout();
  forget_rollout(number);
}

// Drops the lease of the part's rollout, if the part itself no longer has the rollout.
void Hub::forget_rollout(std::uint32_t number) {
  if (slots_.parts().at(number).rollout()) return;
  PartObjects& objects = objects_of_part(number);
  if (objects.lease.is_valid()) keep_last_actions(slots_.parts().at(number).slots());
  objects.lease = nb::object();
  objects.extras = nb::object();
}

// Copies the last actions of these slots from the rollout to the pool's own rows, so that they outlive the rollout.
void Hub::keep_last_actions(const std::vector<std::uint32_t>& slots) {
  std::vector<std::uint32_t> from, to;
  for (std::uint32_t slot : slots) {
    from.push_back(slots_[slot].action_row);
    to.push_back(slots_[slot].position);
  }
  actions_.move(from, to);
  for (std::uint32_t slot : slots) slots_.set_action_row(slot, slots_[slot].position);
}

// Marks the rows of these runs as filled. `extras`: the objects of these runs, by position in the batch, which are
// added to those of the rollout.
void Hub::note_filled(std::uint32_t number, const std::vector<Run>& runs, nb::handle extras) {
  Part& part = slots_.parts().at(number);
  part.fill(runs);
  if (!extras.is_valid()) return;
  std::uint32_t position = 0;
  for (const Run& run : runs) {
    const nb::int_ key(position);
    if (part.is_in_rollout(run.row) && PyDict_Contains(extras.ptr(), key.ptr()) == 1)
      nb::borrow<nb::dict>(objects_of_part(number).extras)[nb::int_(run.row - part.rollout()->first_row())] =
          nb::borrow<nb::dict>(extras)[key];
    position += run.count;
  }
}

void Hub::add_info_column(Column column) {
  const auto offset = static_cast<std::uint64_t>(column.row(0) - arena_->at<std::byte>(0));
  const std::uint64_t bytes = column.row_bytes(), before = plan_.first_rollout_row() * bytes;
  if (plan_.rollout_rows != 0) arena_->reserve({offset, before});
  rollout_store_->add_column({offset + before, bytes});
  lendings_->add_column(column.row(0), bytes);
  frame_taker_.add_info_column(std::move(column));
}

}  // namespace remuda
