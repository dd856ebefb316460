//! Files of segments that are open, of all logs of a shard: no more than the limit, so that the number of descriptors does
//! not grow with the number of logs. The one that was not used for longest is closed for a new one. One that is in use is
//! not: whoever works on a file holds an [`OpenFile`].

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Deref;
use std::rc::{Rc, Weak};

use crate::disk::Disk;

/// Files in use that are passed over before one more than the limit is opened: keeps that from costing much.
const ATTEMPTS_MAX: usize = 16;

/// The open files of a shard.
pub struct OpenFiles<F> {
    limit: usize,
    /// By when they were used last.
    files: RefCell<BTreeMap<u64, OpenFile<F>>>,
    uses: Cell<u64>,
}

/// A file that is open at least as long as this is there.
pub struct OpenFile<F>(Rc<Slot<F>>);

/// Where a file may be found that is still open.
pub(crate) struct Remembered<F>(Weak<Slot<F>>);

struct Slot<F> {
    file: F,
    used: Cell<u64>,
    set: Weak<OpenFiles<F>>,
}

impl<F> Clone for OpenFile<F> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<F> Deref for OpenFile<F> {
    type Target = F;

    fn deref(&self) -> &F {
        &self.0.file
    }
}

impl<F> OpenFiles<F> {
    /// `limit`: files that are open and that nobody works on, at most.
    pub fn new(limit: usize) -> Rc<Self> {
        Rc::new(Self { limit: limit.max(1), files: RefCell::default(), uses: Cell::new(0) })
    }

    pub fn len(&self) -> usize {
        self.files.borrow().len()
    }

    pub fn is_empty(&self) -> bool {
        self.files.borrow().is_empty()
    }

    /// Takes a file that was just opened.
    pub(crate) fn add(self: &Rc<Self>, file: F) -> OpenFile<F> {
        self.make_room();
        let used = self.next_use();
        let file = OpenFile(Rc::new(Slot { file, used: Cell::new(used), set: Rc::downgrade(self) }));
        self.files.borrow_mut().insert(used, file.clone());
        file
    }

    fn next_use(&self) -> u64 {
        self.uses.replace(self.uses.get() + 1)
    }

    fn make_room(&self) {
        let mut files = self.files.borrow_mut();
        let mut passed_over = Vec::new();
        while files.len() + passed_over.len() >= self.limit && passed_over.len() < ATTEMPTS_MAX {
            let Some((used, file)) = files.pop_first() else { break };
            if Rc::strong_count(&file.0) > 1 {
                passed_over.push((used, file));
            }
        }
        files.extend(passed_over);
    }
}

impl<F> OpenFile<F> {
    /// One that is not counted, and closed by nobody but those who hold it.
    pub(crate) fn uncounted(file: F) -> Self {
        Self(Rc::new(Slot { file, used: Cell::new(0), set: Weak::new() }))
    }

    pub(crate) fn remember(&self) -> Remembered<F> {
        Remembered(Rc::downgrade(&self.0))
    }
}

impl<F> Remembered<F> {
    /// The file, if it is still open; it counts as used.
    pub fn find(&self) -> Option<OpenFile<F>> {
        let file = OpenFile(self.0.upgrade()?);
        if let Some(set) = file.0.set.upgrade() {
            let used = set.next_use();
            let mut files = set.files.borrow_mut();
            // Not there when it was closed while it was in use.
            if let Some(known) = files.remove(&file.0.used.get()) {
                file.0.used.set(used);
                files.insert(used, known);
            }
        }
        Some(file)
    }

    pub fn is_open(&self) -> bool {
        self.0.strong_count() > 0
    }

    /// Closes the file, as soon as nobody works on it any more.
    pub fn close(self) {
        let Some(slot) = self.0.upgrade() else { return };
        if let Some(set) = slot.set.upgrade() {
            set.files.borrow_mut().remove(&slot.used.get());
        }
    }
}

/// A disk, and which of its files are open.
pub struct Files<D: Disk> {
    pub disk: D,
    pub open: Rc<OpenFiles<D::File>>,
}

impl<D: Disk> Clone for Files<D> {
    fn clone(&self) -> Self {
        Self { disk: self.disk.clone(), open: Rc::clone(&self.open) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Notes when it is closed.
    struct Tracked(u32, Rc<RefCell<Vec<u32>>>);

    impl Drop for Tracked {
        fn drop(&mut self) {
            self.1.borrow_mut().push(self.0);
        }
    }

    #[test]
    fn the_limit_holds_and_the_one_not_used_for_longest_goes() {
        // Rule: with more files than may be open, those that are used stay.
        let (closed, open) = (Rc::default(), OpenFiles::new(3));
        let known: Vec<_> = (0..3).map(|at| open.add(Tracked(at, Rc::clone(&closed))).remember()).collect();
        assert!(known[0].find().is_some());
        for at in 3..5 {
            open.add(Tracked(at, Rc::clone(&closed)));
            assert_eq!(open.len(), 3);
        }
        assert_eq!(*closed.borrow(), [1, 2]);
        assert!(known[0].is_open() && known[0].find().is_some());
        assert!(!known[1].is_open() && known[1].find().is_none());
    }

    #[test]
    fn a_file_in_use_is_not_closed() {
        // Rule: who works on a file has it open to the end, whatever is opened meanwhile.
        let (closed, open) = (Rc::default(), OpenFiles::new(2));
        let used = open.add(Tracked(0, Rc::clone(&closed)));
        let known = used.remember();
        for at in 1..10 {
            open.add(Tracked(at, Rc::clone(&closed)));
        }
        assert_eq!((closed.borrow().len(), open.len()), (8, 2));
        assert!(!closed.borrow().contains(&0));
        // Closed on purpose: then it ends with its last use.
        known.close();
        assert!(!closed.borrow().contains(&0));
        drop(used);
        assert!(closed.borrow().contains(&0));
        assert_eq!(open.len(), 1);
    }

    #[test]
    fn more_files_than_the_limit_may_be_in_use() {
        // Rule: nobody waits for a file that somebody else works on; the limit holds again afterwards.
        let (closed, open) = (Rc::default(), OpenFiles::new(2));
        let used: Vec<_> = (0..5).map(|at| open.add(Tracked(at, Rc::clone(&closed)))).collect();
        assert_eq!(open.len(), 5);
        drop(used);
        open.add(Tracked(5, Rc::clone(&closed)));
        assert_eq!(open.len(), 2);
    }
}
