//! Deadlines in constant time: six wheels of 64 slots, each slot of one wheel as wide as the whole wheel below it.
//!
//! Insert and cancel are O(1); an entry moves to a lower wheel at most five times before it is due. Occupied slots are bits of
//! one word per wheel, so finding the next one is a few instructions however far away it is. One tick is a millisecond,
//! the resolution of every timeout in the protocol; the reach is two years, and later deadlines count as that.
//!
//! Entries that are due come out in order of their deadline, those of one millisecond in the order in which they reached
//! the lowest wheel.

const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
const WHEELS: usize = 6;
/// Ticks the wheels reach ahead. One slot of the highest wheel less than its round, so that a deadline there is never taken for
/// the slot that `now` is in.
const REACH_MS: u64 = (SLOTS as u64 - 1) << (SLOT_BITS as u64 * (WHEELS as u64 - 1));
const NONE: u32 = u32::MAX;

/// Names one entry; never another one, even after the entry's place has been reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimerId {
    place: u32,
    generation: u32,
}

/// Values that fall due, on a clock of milliseconds that only goes forward.
#[derive(Clone, Debug)]
pub struct TimingWheel<T> {
    /// Everything due up to here (inclusive) has been moved to `due`.
    now_ms: u64,
    wheels: [Wheel; WHEELS],
    /// Due, not yet polled, linked like a slot.
    due: Slot,
    places: Vec<Place<T>>,
    /// Heads the list of places without an entry.
    vacant: u32,
    len: usize,
}

#[derive(Clone, Debug)]
struct Wheel {
    /// Bit n: slot n is not empty.
    occupied: u64,
    slots: [Slot; SLOTS],
}

/// A doubly linked list through `places`.
#[derive(Clone, Copy, Debug)]
struct Slot {
    first: u32,
    last: u32,
}

impl Slot {
    const EMPTY: Self = Self { first: NONE, last: NONE };
}

#[derive(Clone, Debug)]
struct Place<T> {
    generation: u32,
    previous: u32,
    next: u32,
    entry: Option<Entry<T>>,
}

#[derive(Clone, Debug)]
struct Entry<T> {
    deadline_ms: u64,
    home: Home,
    value: T,
}

#[derive(Clone, Copy, Debug)]
enum Home {
    Slot { wheel: usize, slot: usize },
    Due,
}

impl<T> TimingWheel<T> {
    /// Deadlines are on the same clock as `now_ms`.
    pub fn new(now_ms: u64) -> Self {
        let wheel = || Wheel { occupied: 0, slots: [Slot::EMPTY; SLOTS] };
        Self {
            now_ms,
            wheels: std::array::from_fn(|_| wheel()),
            due: Slot::EMPTY,
            places: Vec::new(),
            vacant: NONE,
            len: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A deadline that has passed is due at once.
    pub fn insert(&mut self, deadline_ms: u64, value: T) -> TimerId {
        let deadline_ms = deadline_ms.min(self.now_ms.saturating_add(REACH_MS));
        let place = self.take_place();
        let entry = Entry { deadline_ms, home: Home::Due, value };
        self.places[place as usize].entry = Some(entry);
        self.len += 1;
        self.link(place, deadline_ms);
        TimerId { place, generation: self.places[place as usize].generation }
    }

    /// The value, if it has been neither cancelled nor polled.
    pub fn cancel(&mut self, id: TimerId) -> Option<T> {
        let place = self.places.get(id.place as usize)?;
        if place.generation != id.generation || place.entry.is_none() {
            return None;
        }
        self.unlink(id.place);
        self.release_place(id.place)
    }

    /// Moves the clock forward; a time that has passed already changes nothing.
    pub fn advance(&mut self, now_ms: u64) {
        while let Some((wheel, slot, begins_ms)) = self.next_slot() {
            if begins_ms > now_ms {
                break;
            }
            self.now_ms = self.now_ms.max(begins_ms);
            let mut place = self.clear_slot(wheel, slot);
            while place != NONE {
                let next = self.places[place as usize].next;
                let deadline_ms = self.places[place as usize].entry.as_ref().map_or(0, |entry| entry.deadline_ms);
                self.link(place, deadline_ms);
                place = next;
            }
        }
        self.now_ms = self.now_ms.max(now_ms);
    }

    /// The next entry whose deadline [`Self::advance`] has reached.
    pub fn poll_due(&mut self) -> Option<T> {
        let place = self.due.first;
        if place == NONE {
            return None;
        }
        self.unlink(place);
        self.release_place(place)
    }

    /// When to call [`Self::advance`] next: nothing falls due before. `None`: never, there is nothing to wait for.
    pub fn next_wake_ms(&self) -> Option<u64> {
        if self.due.first != NONE {
            return Some(self.now_ms);
        }
        self.next_slot().map(|(_, _, begins_ms)| begins_ms)
    }

    /// The occupied slot that begins first, and when. On a tie the higher wheel: its entries may belong into the lower slot.
    fn next_slot(&self) -> Option<(usize, usize, u64)> {
        let mut best: Option<(usize, usize, u64)> = None;
        for (number, wheel) in self.wheels.iter().enumerate() {
            if wheel.occupied == 0 {
                continue;
            }
            let shift = SLOT_BITS * number as u32;
            let current = ((self.now_ms >> shift) % SLOTS as u64) as u32;
            let ahead = wheel.occupied.rotate_right(current).trailing_zeros();
            let slot = (current + ahead) as usize % SLOTS;
            let begins_ms = ((self.now_ms >> shift) + u64::from(ahead)) << shift;
            if best.is_none_or(|(_, _, known)| begins_ms <= known) {
                best = Some((number, slot, begins_ms));
            }
        }
        best
    }

    fn link(&mut self, place: u32, deadline_ms: u64) {
        let home = if deadline_ms <= self.now_ms {
            Home::Due
        } else {
            // The highest bit in which the deadline differs from now says in which wheel the two are in different slots.
            let wheel = ((deadline_ms ^ self.now_ms).ilog2() / SLOT_BITS) as usize;
            let wheel = wheel.min(WHEELS - 1);
            let slot = ((deadline_ms >> (SLOT_BITS * wheel as u32)) % SLOTS as u64) as usize;
            self.wheels[wheel].occupied |= 1 << slot;
            Home::Slot { wheel, slot }
        };
        if let Some(entry) = &mut self.places[place as usize].entry {
            entry.home = home;
        }
        let last = self.list(home).last;
        self.places[place as usize].previous = last;
        self.places[place as usize].next = NONE;
        match last {
            NONE => self.list(home).first = place,
            last => self.places[last as usize].next = place,
        }
        self.list(home).last = place;
    }

    fn unlink(&mut self, place: u32) {
        let Place { previous, next, entry, .. } = &self.places[place as usize];
        let (previous, next) = (*previous, *next);
        let Some(home) = entry.as_ref().map(|entry| entry.home) else { return };
        match previous {
            NONE => self.list(home).first = next,
            previous => self.places[previous as usize].next = next,
        }
        match next {
            NONE => self.list(home).last = previous,
            next => self.places[next as usize].previous = previous,
        }
        if let Home::Slot { wheel, slot } = home
            && self.wheels[wheel].slots[slot].first == NONE
        {
            self.wheels[wheel].occupied &= !(1 << slot);
        }
    }

    fn list(&mut self, home: Home) -> &mut Slot {
        match home {
            Home::Slot { wheel, slot } => &mut self.wheels[wheel].slots[slot],
            Home::Due => &mut self.due,
        }
    }

    /// The first place that was in the slot; the links between its places stay.
    fn clear_slot(&mut self, wheel: usize, slot: usize) -> u32 {
        let wheel = &mut self.wheels[wheel];
        wheel.occupied &= !(1 << slot);
        std::mem::replace(&mut wheel.slots[slot], Slot::EMPTY).first
    }

    fn take_place(&mut self) -> u32 {
        if self.vacant == NONE {
            let place = u32::try_from(self.places.len()).expect("fewer than 2^32 deadlines");
            self.places.push(Place { generation: 0, previous: NONE, next: NONE, entry: None });
            return place;
        }
        let place = self.vacant;
        self.vacant = self.places[place as usize].next;
        place
    }

    fn release_place(&mut self, number: u32) -> Option<T> {
        let place = &mut self.places[number as usize];
        let entry = place.entry.take()?;
        place.generation = place.generation.wrapping_add(1);
        place.next = self.vacant;
        self.vacant = number;
        self.len -= 1;
        Some(entry.value)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Insert { wait_ms: u64 },
        Cancel { serial: usize },
        Advance { by_ms: u64 },
    }

    fn step() -> impl Strategy<Value = Step> {
        let wait = prop_oneof![0u64..5, 0u64..200, 0u64..10_000, 0u64..100_000_000, Just(u64::MAX / 2)];
        let by = prop_oneof![0u64..3, 0u64..70, 0u64..5_000, 0u64..50_000_000];
        prop_oneof![
            wait.prop_map(|wait_ms| Step::Insert { wait_ms }),
            (0usize..200).prop_map(|serial| Step::Cancel { serial }),
            by.prop_map(|by_ms| Step::Advance { by_ms }),
        ]
    }

    proptest! {
        #[test]
        fn behaves_like_a_sorted_list(start in prop_oneof![Just(0u64), 0u64..1_000_000_000_000], steps in proptest::collection::vec(step(), 0..200)) {
            // Rule: exactly what is due comes out, never early, never twice, in order of deadline; the next wake is never late.
            let mut now = start;
            let mut wheel = TimingWheel::new(now);
            let mut model: BTreeMap<usize, u64> = BTreeMap::new();
            let mut ids = Vec::new();
            for step in steps {
                match step {
                    Step::Insert { wait_ms } => {
                        let deadline = now.saturating_add(wait_ms.min(REACH_MS));
                        ids.push(wheel.insert(deadline, ids.len()));
                        model.insert(ids.len() - 1, deadline);
                    }
                    Step::Cancel { serial } => {
                        if let Some(id) = ids.get(serial) {
                            prop_assert_eq!(wheel.cancel(*id).is_some(), model.remove(&serial).is_some());
                        }
                    }
                    Step::Advance { by_ms } => {
                        now += by_ms;
                        wheel.advance(now);
                        let mut out = Vec::new();
                        while let Some(serial) = wheel.poll_due() {
                            out.push((model.remove(&serial).expect("known and not polled before"), serial));
                        }
                        prop_assert!(out.is_sorted_by_key(|(deadline, _)| *deadline));
                        prop_assert!(out.iter().all(|(deadline, _)| *deadline <= now));
                        prop_assert!(model.values().all(|deadline| *deadline > now));
                    }
                }
                prop_assert_eq!(wheel.len(), model.len());
                match (wheel.next_wake_ms(), model.values().min()) {
                    (None, None) => {}
                    (Some(wake), Some(first)) => prop_assert!(wake <= (*first).max(now), "{} {}", wake, first),
                    (wake, first) => prop_assert!(false, "{:?} {:?}", wake, first),
                }
            }
        }
    }

    #[test]
    fn a_reused_place_is_not_mistaken_for_the_old_entry() {
        // Rule: cancelling something that has come out already never hits what took its place.
        let mut wheel = TimingWheel::new(0);
        let first = wheel.insert(1, 'a');
        wheel.advance(1);
        assert_eq!(wheel.poll_due(), Some('a'));
        let second = wheel.insert(5, 'b');
        assert_eq!(wheel.cancel(first), None);
        assert_eq!(wheel.cancel(second), Some('b'));
    }
}
