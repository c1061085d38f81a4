// Several ringers and one waiter, who may be woken for no reason but never fails to be woken for a good one.
//
// The waiter's stores go through a buffer and arrive whenever they like, in order; a sequentially consistent store is
// one after which nothing is read before the buffer is empty.  Falling asleep in the kernel does not empty it: Linux
// happens to do so, nobody promises it.

#define RINGERS 2
#define TIMES 2      // how far each of them counts
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

byte stopped;  // ringers that will not ring again
byte goal;     // the waiter's
bool waited;

// Only he who waits for what will never come may give up: a lost wake-up shows as a sleep without end.
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

// Rings as often as it likes.
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

// Asks for more or for less, as it likes: targets may fall.
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
