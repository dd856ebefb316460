//! Unit tests of the store, without a kernel.

use super::*;

fn name(text: &str) -> &OsStr {
    OsStr::new(text)
}

/// What was flushed, with its name, is there after a cut; with flushes ignored, some seed loses it.
#[test]
fn flushed_data_survives_and_ignored_flushes_do_not() {
    for (flushes, must_survive) in [(Flushes::Honest, true), (Flushes::Ignored, false)] {
        let survived = (0..64).all(|seed| {
            let mut store = Store::new(flushes);
            let ino = store.create(ROOT, name("log"), false).expect("created").ino;
            store.write(ino, 0, &[7; 10_000]).expect("written");
            store.sync_file(ino).expect("synced");
            store.sync_dir(ROOT).expect("synced");
            store.power_cut(&mut Prng::new(seed));
            assert_eq!(store.lookup(ROOT, name("log")), Err(libc::EIO), "no call works without power");
            store.power_on();
            store
                .lookup(ROOT, name("log"))
                .is_ok_and(|found| found.len_bytes == 10_000 && store.read(found.ino, 0, 20_000) == Ok(vec![7; 10_000]))
        });
        assert_eq!(survived, must_survive, "{flushes:?}");
    }
}

/// A name that no directory sync covered may be gone, and so may a removal.
#[test]
fn names_need_a_directory_sync() {
    let outcomes: BTreeSet<(bool, bool)> = (0..64)
        .map(|seed| {
            let mut store = Store::new(Flushes::Honest);
            store.create(ROOT, name("old"), false).expect("created");
            store.sync_dir(ROOT).expect("synced");
            store.remove(ROOT, name("old"), false).expect("removed");
            store.create(ROOT, name("new"), false).expect("created");
            store.power_cut(&mut Prng::new(seed));
            store.power_on();
            (store.lookup(ROOT, name("old")).is_ok(), store.lookup(ROOT, name("new")).is_ok())
        })
        .collect();
    assert_eq!(outcomes, BTreeSet::from([(true, false), (false, false), (false, true)]));
}

/// An overwrite that was not flushed leaves, sector by sector, the old or the new bytes.
#[test]
fn unflushed_overwrites_tear_at_sectors() {
    let mut torn = 0;
    for seed in 0..64 {
        let mut store = Store::new(Flushes::Honest);
        let ino = store.create(ROOT, name("log"), false).expect("created").ino;
        store.write(ino, 0, &[1; BLOCK_BYTES]).expect("written");
        store.sync_file(ino).expect("synced");
        store.sync_dir(ROOT).expect("synced");
        store.write(ino, 0, &[2; BLOCK_BYTES]).expect("written");
        store.power_cut(&mut Prng::new(seed));
        store.power_on();
        let bytes = store.read(ino, 0, BLOCK_BYTES).expect("read");
        for sector in bytes.chunks(SECTOR_BYTES) {
            assert!(sector.iter().all(|byte| *byte == sector[0]), "seed {seed}: a sector is never mixed");
        }
        torn += u32::from(bytes.contains(&1) && bytes.contains(&2));
    }
    assert!(torn > 5, "only {torn} of 64 cuts tore the block");
}

/// Cutting a file zeroes what a later extension shows.
#[test]
fn truncation_forgets_the_tail() {
    let mut store = Store::new(Flushes::Honest);
    let ino = store.create(ROOT, name("log"), false).expect("created").ino;
    store.write(ino, 0, &[9; 9000]).expect("written");
    store.set_len(ino, 100).expect("cut");
    store.set_len(ino, 200).expect("extended");
    let mut want = vec![9; 100];
    want.resize(200, 0);
    assert_eq!(store.read(ino, 0, 1000), Ok(want));
}

/// What needs a new block of a full store is refused; cutting, removing and closing give space back.
#[test]
fn space_is_counted() {
    let block = BLOCK_BYTES as u64;
    let mut store = Store::new(Flushes::Honest);
    store.set_capacity(4 * block);
    let ino = store.create(ROOT, name("log"), false).expect("created").ino;
    store.note_open(ino);
    store.reserve(ino, 2 * block, true).expect("two of four");
    assert_eq!((store.used_blocks(), store.attributes(ino).expect("there").len_bytes), (2, 0));
    store.write(ino, 0, &[1; 2 * BLOCK_BYTES]).expect("reserved");
    store.write(ino, 3 * block, &[1; BLOCK_BYTES]).expect("the third of four");
    assert_eq!(store.used_blocks(), 3);
    assert_eq!(store.write(ino, 4 * block, &[1; 2 * BLOCK_BYTES]), Err(libc::ENOSPC));
    assert_eq!(store.reserve(ino, 6 * block, false), Err(libc::ENOSPC));
    store.write(ino, 0, &[2; 2 * BLOCK_BYTES]).expect("no new block");
    store.reserve(ino, 4 * block, false).expect("the hole");
    assert_eq!(store.used_blocks(), 4);
    store.set_len(ino, block + 1).expect("cut");
    assert_eq!(store.used_blocks(), 2);
    store.remove(ROOT, name("log"), false).expect("removed");
    assert_eq!(store.used_blocks(), 2, "it is open");
    store.note_closed(ino);
    assert_eq!(store.used_blocks(), 0);
    let other = store.create(ROOT, name("other"), false).expect("created").ino;
    store.write(other, 0, &[3; BLOCK_BYTES]).expect("room");
    let new = store.create(ROOT, name("new"), false).expect("created").ino;
    store.rename(ROOT, name("new"), ROOT, name("other")).expect("renamed");
    assert_eq!((store.used_blocks(), store.path(new).as_str()), (0, "other"));
    store.power_cut(&mut Prng::new(1));
    store.power_on();
    assert_eq!(store.used_blocks(), 0, "nothing was flushed");
}

/// A torn write leaves some sectors of the old, some of the new.
#[test]
fn a_torn_write_is_mixed() {
    let mut store = Store::new(Flushes::Honest);
    let ino = store.create(ROOT, name("log"), false).expect("created").ino;
    store.write(ino, 0, &[1; BLOCK_BYTES]).expect("written");
    store.tear(ino, 0, &[2; BLOCK_BYTES], &mut Prng::new(3)).expect("torn");
    let bytes = store.read(ino, 0, BLOCK_BYTES).expect("read");
    assert!(bytes.contains(&1) && bytes.contains(&2));
    store.flip_bit(ino, 700).expect("flipped");
    assert_eq!(store.read(ino, 700, 1), Ok(vec![bytes[700] ^ 1]));
}
