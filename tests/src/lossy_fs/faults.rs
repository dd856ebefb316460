//! What goes wrong on command: chosen calls fail, tear or wait, by the path of their file and by count.

/// Calls that can go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Read,
    Write,
    /// fsync and fdatasync, of a file or of a directory.
    Flush,
}

/// What happens to a chosen call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It answers with this errno and does nothing.
    Fail(i32),
    /// A write of which some sectors arrive, by this seed, answers EIO. Any other call only fails.
    Tear(u64),
    /// It is carried out and answered when the fault is lifted.
    Hold,
}

/// Which calls go wrong, and how.
#[derive(Clone, Debug)]
pub struct Fault {
    pub call: Call,
    /// Of the file's path below the mount point, without a slash in front; `*` stands for anything, slashes too.
    pub pattern: String,
    /// So many such calls pass first.
    pub skip: u64,
    /// Then so many go wrong.
    pub count: u64,
    pub effect: Effect,
}

impl Fault {
    /// From now on, every such call.
    pub fn every(call: Call, pattern: &str, effect: Effect) -> Self {
        Self { call, pattern: pattern.to_owned(), skip: 0, count: u64::MAX, effect }
    }

    /// The next such call only.
    pub fn next(call: Call, pattern: &str, effect: Effect) -> Self {
        Self { count: 1, ..Self::every(call, pattern, effect) }
    }
}

/// Names a fault until it is lifted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FaultId(u64);

struct Active {
    id: FaultId,
    fault: Fault,
    seen: u64,
    hits: u64,
}

/// All faults there are at present.
#[derive(Default)]
pub struct Faults {
    active: Vec<Active>,
    next_id: u64,
}

impl Faults {
    pub fn inject(&mut self, fault: Fault) -> FaultId {
        let id = FaultId(self.next_id);
        self.next_id += 1;
        self.active.push(Active { id, fault, seen: 0, hits: 0 });
        id
    }

    pub fn lift(&mut self, id: FaultId) {
        self.active.retain(|active| active.id != id);
    }

    /// How many calls it has hit; 0 of one that was lifted.
    pub fn hits(&self, id: FaultId) -> u64 {
        self.active.iter().find(|active| active.id == id).map_or(0, |active| active.hits)
    }

    /// How many calls it has looked at, hit or not; 0 of one that was lifted.
    pub fn seen(&self, id: FaultId) -> u64 {
        self.active.iter().find(|active| active.id == id).map_or(0, |active| active.seen)
    }

    pub fn is_empty(&self) -> bool {
        self.active.is_empty()
    }

    /// What is to happen to this call: the first fault that it meets decides.
    pub fn meet(&mut self, call: Call, path: &str) -> Option<(FaultId, Effect)> {
        let mut met = None;
        for active in self.active.iter_mut().filter(|active| active.fault.call == call) {
            if !matches(&active.fault.pattern, path) {
                continue;
            }
            active.seen += 1;
            let from = active.fault.skip;
            let is_hit = active.seen > from && active.seen - from <= active.fault.count;
            if is_hit && met.is_none() {
                active.hits += 1;
                met = Some((active.id, active.fault.effect));
            }
        }
        met
    }
}

/// Whether `text` is what `pattern` describes.
fn matches(pattern: &str, text: &str) -> bool {
    let mut pieces = pattern.split('*');
    let first = pieces.next().unwrap_or_default();
    let Some(mut left) = text.strip_prefix(first) else { return false };
    let mut last = None;
    for piece in pieces {
        if let Some(before) = last.replace(piece) {
            let Some(at) = left.find(before) else { return false };
            left = &left[at + before.len()..];
        }
    }
    last.map_or(left.is_empty(), |last: &str| left.ends_with(last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_choose_paths() {
        // Rule: a star stands for anything, and all else for itself.
        for (pattern, text, want) in [
            ("data/t-3/*.log", "data/t-3/000.log", true),
            ("data/t-3/*.log", "data/t-30/000.log", false),
            ("data/t-3/*.log", "data/t-3/000.index", false),
            ("*journal/0/*.wal", "data/journal/0/1.wal", true),
            ("*journal/0/*.wal", "data/journal/1/1.wal", false),
            ("*", "anything/at/all", true),
            ("exact", "exact", true),
            ("exact", "exactly", false),
            ("*ab*ab", "xab", false),
            ("*ab*ab", "xabab", true),
        ] {
            assert_eq!(matches(pattern, text), want, "{pattern} {text}");
        }
    }

    #[test]
    fn faults_hit_by_count() {
        // Rule: so many pass, so many are hit, the rest passes; of two faults the first decides.
        let mut faults = Faults::default();
        let first = faults.inject(Fault { skip: 1, count: 2, ..Fault::every(Call::Write, "a*", Effect::Fail(5)) });
        let mut met = |call, path| faults.meet(call, path).map(|(_, effect)| effect);
        let writes: Vec<_> = (0..4).map(|_| met(Call::Write, "ab").is_some()).collect();
        assert_eq!(writes, [false, true, true, false]);
        assert_eq!(met(Call::Flush, "ab"), None);
        assert_eq!(faults.hits(first), 2);
        let held = faults.inject(Fault::every(Call::Write, "*", Effect::Hold));
        assert_eq!(faults.meet(Call::Write, "ab"), Some((held, Effect::Hold)));
        faults.lift(held);
        assert_eq!(faults.meet(Call::Write, "ab"), None);
    }
}
