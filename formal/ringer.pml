// A ringer publishes one bit after another, and keeps its count while the waiter wants all bits.  The waiter changes
// between one bit and all at any time.  It receives what it waits for.  If it wants each bit, it receives a bit before
// the ringer's next step, which may take forever.
//
// The stores of each side go through a buffer (TSO).  A fence waits until the side's own buffer is empty, and so does
// adding to the count.

#define BITS 3

byte published, notified;
bool wants_all;
chan published_buffer = [BITS] of { byte };  // the ringer's stores that are still on their way
chan wants_buffer = [2] of { bool };         // the waiter's stores that are still on their way

#ifdef RINGER_UNFENCED
#define ringer_fence skip
#else
#define ringer_fence empty(published_buffer)
#endif
#ifdef WAITER_UNFENCED
#define waiter_fence skip
#else
#define waiter_fence empty(wants_buffer)
#endif

bool hangs;   // whether the ringer hangs in a step
bool asleep;  // whether the waiter sleeps
bool wants;   // whether the waiter wants all bits
byte taken;   // the number of published bits that the waiter has seen

active proctype Memory() {
  byte count;
  bool all;
end:
  do
  :: atomic { published_buffer ? count -> published = count; count = 0 }
  :: atomic { wants_buffer ? all -> wants_all = all; all = false }
  od
}

inline ring() {
  atomic { empty(published_buffer) -> notified = notified + kept; kept = 0 }
}

active proctype Ringer() {
  byte n, kept;
  do
  :: n < BITS ->
     if
     :: hangs = true; end: false
     :: skip
     fi;
     n++;
     published_buffer ! n;  // RingProducer::publish
     kept++;
     if
     :: n < BITS ->  // ring_for_some
        ringer_fence;
        if
        :: wants_all
        :: !wants_all -> ring()
        fi
#ifdef KEPT_AT_THE_END
     :: n == BITS && wants_all
     :: n == BITS && !wants_all -> ring()
#else
     :: n == BITS -> ring()  // ring_for_all
#endif
     fi
  :: n == BITS -> break
  od
}

// Sleeps until the count is reached, or returns at once.
inline sleep_until(count) {
  if
  :: skip
  :: asleep = true; end: notified >= count; asleep = false
  fi
}

// Hub::wait, several times.
active proctype Waiter() {
  byte heard, goal;
  bool all;
  do
  :: taken < BITS ->
     if
     :: goal = taken + 1; all = false
     :: goal = BITS; all = true
     fi;
     do
     :: heard = notified;
        taken = published;  // Hub::drain
        if
        :: taken >= goal -> break
        :: taken < goal -> break  // the time of the wait is over
        :: taken < goal && all == wants -> sleep_until(heard + goal - taken)
        :: taken < goal && all != wants ->
           wants = all;
           wants_buffer ! all;  // want_all
           waiter_fence;
#ifdef LOOKS_ONCE
           sleep_until(heard + goal - taken)
#else
           if
           :: all -> sleep_until(heard + goal - taken)
           :: !all  // the waiter looks again
           fi
#endif
        fi
     od
  :: taken == BITS -> break
  od
}

// Runs when no other step is possible: a waiter that sleeps then waits for a ringer that hangs in a step.
active proctype Monitor() {
  timeout;
  assert(!asleep || (hangs && (wants || taken == published)))
}
