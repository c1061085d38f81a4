// The ring of src/core/ipc/ring.hpp: one producer, one consumer, a memory that reorders, and a death at any instruction.
//
// The producer sends the numbers 1 .. NUMBERS in runs.  A record has the first and the last number of a run, in two
// words.  The consumer asserts that no record is torn, stale, lost, doubled or out of order.

#define CAPACITY 2  // a power of two
#define MASK (CAPACITY - 1)
#define NUMBERS 5
#define START 254   // close to 256, where counters wrap here; in the core they wrap at 2^32

// Addresses: two words for each record, then the counter.
#define FIRST(counter) (2 * ((counter) & MASK))
#define LAST(counter) (2 * ((counter) & MASK) + 1)
#define PUBLISHED (2 * CAPACITY)

#define minus(a, b) (((a) - (b)) & 255)
#define plus(a, b) (((a) + (b)) & 255)

#ifdef CAPACITY_OFF_BY_ONE
#define full(next) (minus(next, consumed) > MASK + 1)
#else
#define full(next) (minus(next, consumed) > MASK)
#endif

byte memory[2 * CAPACITY];            // the records as the consumer sees them
byte published = START;               // the counter as the consumer sees it
chan buffer = [6] of { byte, byte };  // the producer's stores that are still on their way: address, value
byte consumed = START;
bool killed, over;                    // the producer was killed; it has ended
byte promised;                        // ghost: the last number that was published

#define store(address, value) buffer ! address, value

// A processor that keeps only the required orders: that of stores to one address, and "release": the counter leaves
// the buffer after all stores before it.
active proctype Memory() {
  byte value;
end:
  do
  :: atomic { buffer ?? eval(FIRST(0)), value -> memory[FIRST(0)] = value }
  :: atomic { buffer ?? eval(LAST(0)), value -> memory[LAST(0)] = value }
  :: atomic { buffer ?? eval(FIRST(1)), value -> memory[FIRST(1)] = value }
  :: atomic { buffer ?? eval(LAST(1)), value -> memory[LAST(1)] = value }
#ifdef RELAXED_PUBLISH
  :: atomic { buffer ?? eval(PUBLISHED), value -> published = value }
#else
  :: atomic { buffer ? eval(PUBLISHED), value -> published = value }
#endif
  od
}

active proctype Killer() { if :: killed = true :: skip fi }  // kills the producer at any time, or never

active proctype Producer() {
  byte next = START, mine = START, number = 0;
  {
    do
    :: number < NUMBERS && !full(next) ->  // push
       number++;
#ifdef PUBLISH_FIRST
       atomic { store(PUBLISHED, plus(next, 1)); promised = number };
#endif
       store(FIRST(next), number);
       store(LAST(next), number);
       next = plus(next, 1)
#ifdef JOIN_PUBLISHED
    :: number < NUMBERS && number > 0 ->
#else
    :: number < NUMBERS && next != mine ->  // unpublished: lengthen the run
#endif
       number++;
       store(LAST(next - 1), number)
    :: next != mine ->  // publish
       atomic { store(PUBLISHED, next); promised = number };
       mine = next
    :: number == NUMBERS && next == mine -> break
    od
  } unless { killed };
  over = true
}

#define all_arrived (over && len(buffer) == 0)

active proctype Consumer() {
  byte next = START, first, last, seen = 0;
  do
  :: !all_arrived || published != next ->
#ifdef READ_EARLY
     first = memory[FIRST(next)];
     last = memory[LAST(next)];
#endif
     if
     :: published == next  // empty
     :: published != next ->
#ifdef CONSUME_FIRST
        consumed = plus(next, 1);
#endif
#ifndef READ_EARLY
        first = memory[FIRST(next)];
        last = memory[LAST(next)];
#endif
        assert(first == seen + 1 && last >= first);
        seen = last;
        next = plus(next, 1);
#ifndef CONSUME_FIRST
        consumed = next
#endif
     fi
  :: all_arrived && published == next -> break
  od;
  assert(seen == promised)  // all published records arrived whole, and no others
}
