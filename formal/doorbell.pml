// Several ringers and one waiter.  The waiter may wake up too early, but it is always woken when its goal is reached.
//
// The waiter's stores go through a buffer and arrive in order, at any time.  After a sequentially consistent store, the
// waiter reads nothing before the buffer is empty.  Falling asleep in the kernel does not empty the buffer here: Linux
// does so, but does not guarantee it.

#define RINGERS 2
#define TIMES 2      // the most that each ringer adds
#define START 254    // so that the count wraps
#define TOTAL (RINGERS * TIMES)

#define BELLS 1
#define TARGET 0
#define SLEEPING 1
chan buffer = [4] of { bit, byte };  // the waiter's stores that are still on their way

#define put_target(b, v) buffer ! TARGET, v
#define put_sleeping(b, v) buffer ! SLEEPING, v
#ifdef NOT_SEQ_CST
#define fence(b) skip
#else
#define fence(b) empty(buffer)
#endif

byte stopped;  // the number of ringers that will not ring again
byte goal;     // the count that the waiter waits for
bool waited;

// A sleep may end by time only if the goal will never be reached, so a lost wake-up appears as an endless sleep.
#define slice_over(b) (stopped == RINGERS && !reached(bells[0].notified, goal))

#include "bell.pml"

active proctype Memory() {
  byte value;
end:
  do
  :: atomic { buffer ? TARGET, value -> bells[0].target = value; value = 0 }
  :: atomic { buffer ? SLEEPING, value -> bells[0].sleeping = value; value = 0 }
  od
}

// Rings any number of times.
proctype Ringer() {
  byte count, n, left = TIMES;
  do
  :: left > 0 ->
     select(n : 1 .. left);
     left = left - n;
     ring(0, n)
  :: true -> break
  od;
  stopped++
}

// Waits for any reachable counts, one after another.  A later target may be smaller.
proctype Waiter() {
  byte notified, heard, more, most = plus(START, TOTAL);
  bool interrupted;
  do
  :: heard = bells[0].notified;
     if
     :: heard == most || stopped == RINGERS -> break
     :: else ->
        select(more : 1 .. (most - heard) & 255);
        goal = plus(heard, more);
        wait(0, goal)
     fi
  od;
  waited = true
}

init {
  byte i;
  atomic {
    bells[0].notified = START;
    bells[0].target = START;
    for (i : 1 .. RINGERS) { run Ringer() };
    run Waiter()
  }
}

ltl ends { <> waited }
