// The doorbell of src/core/ipc/doorbell.hpp.  The including model defines BELLS, the number of bells, and:
//
//   put_target(b, v), put_sleeping(b, v)   the waiter's stores
//   fence(b)                               the condition that a sequentially consistent store waits for
//   slice_over(b)                          whether a sleep may end because its time is over
//
// A count is a byte here and wraps at 256.

typedef Bell {
  byte notified;      // also the futex word
  byte target;
  bool sleeping;
  bool asleep;    // in the kernel: the waiter is in the futex queue
}
Bell bells[BELLS];

#define plus(a, b) (((a) + (b)) & 255)
#define reached(count, goal) ((((count) - (goal)) & 255) < 128)

#ifdef TOO_HIGH
#define calls_for_wake(count, b) reached(count, bells[b].target + 1)
#else
#define calls_for_wake(count, b) reached(count, bells[b].target)
#endif

#ifdef NO_COMPARE
#define unchanged(b, expected) true
#else
#define unchanged(b, expected) (bells[b].notified == expected)
#endif

// Adds n to the count of bell b, and wakes its waiter.  `count` is a variable of the ringer.
inline ring(b, n) {
#ifdef LOOK_FIRST
  if
  :: !bells[b].sleeping -> d_step { count = plus(bells[b].notified, n); bells[b].notified = count }
  :: else ->
     d_step { count = plus(bells[b].notified, n); bells[b].notified = count };
#else
  d_step { count = plus(bells[b].notified, n); bells[b].notified = count };  // fetch_add
  if
  :: !bells[b].sleeping
  :: else ->
#endif
     if
     :: calls_for_wake(count, b) -> bells[b].asleep = false  // FUTEX_WAKE
     :: else
     fi
  fi;
  count = 0  // reduces the number of states
}

// FUTEX_WAIT: compares and falls asleep in one step.  A signal may cut any sleep short, but that is decided when the
// sleep begins: a sleeper that is not interrupted and not woken sleeps forever.
inline sleep(b, expected) {
  atomic {
    if
    :: unchanged(b, expected) -> bells[b].asleep = true; if :: interrupted = true :: skip fi
    :: !unchanged(b, expected)
    fi
  };
  atomic { !bells[b].asleep || interrupted || slice_over(b) -> bells[b].asleep = false; interrupted = false }
}

// Waits until the count of bell b reaches the goal.  `notified` and `interrupted` are variables of the waiter.
inline wait(b, goal) {
  if
  :: reached(bells[b].notified, goal)  // at once, or while the waiter spins
  :: true ->                       // patience is over: the waiter stops spinning
#ifdef CHECK_FIRST
     notified = bells[b].notified;
     if
     :: reached(notified, goal)
     :: else ->
        put_target(b, goal);
        put_sleeping(b, true);
        fence(b);
        notified = bells[b].notified;
        sleep(b, notified)
     fi;
#else
#ifndef TARGET_LATE
     put_target(b, goal);
#endif
     put_sleeping(b, true);
     fence(b);
#ifdef TARGET_LATE
     put_target(b, goal);
#endif
     notified = bells[b].notified;
     if
     :: reached(notified, goal)
     :: else -> sleep(b, notified)
     fi;
#endif
     put_sleeping(b, false);
     notified = 0
  fi
}
