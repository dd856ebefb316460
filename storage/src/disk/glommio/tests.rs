use super::*;
use crate::runtime::glommio::block_on;

/// A directory of the test's own, removed at the end.
struct TempDir(PathBuf);

impl TempDir {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("walser-disk-{}-{name}", std::process::id()));
        blocking::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for TempDir {
    #[expect(clippy::disallowed_methods, reason = "the executor is gone")]
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("{} stays behind: {error}", self.0.display());
        }
    }
}

fn run<F: Future<Output = ()> + 'static>(name: &str, test: impl FnOnce(GlommioDisk, PathBuf) -> F + 'static) {
    let dir = TempDir::new(name);
    let path = dir.0.clone();
    block_on(async move { test(GlommioDisk::new(), path).await }).unwrap();
}

async fn numbered_file(disk: &GlommioDisk, path: &Path, blocks: usize) -> (GlommioFile, Vec<u8>) {
    let file = disk.open(path, OpenMode::CreateNew).await.unwrap();
    let want: Vec<u8> = (0..blocks * BLOCK_BYTES).map(|position| (position / 7 % 251) as u8).collect();
    let mut buffer = file.allocate(want.len());
    buffer.copy_from_slice(&want);
    file.write_at(buffer, 0).await.unwrap();
    (file, want)
}

#[test]
fn reads_are_exact_at_any_position_and_end() {
    // Rule: a read returns the bytes asked for, cut at the end of the file, wherever that is.
    run("reads", |disk, dir| async move {
        let (file, mut want) = numbered_file(&disk, &dir.join("a"), 5).await;
        for len in [5 * BLOCK_BYTES, 3 * BLOCK_BYTES + 1000, 3 * BLOCK_BYTES, 1000, 1, 0] {
            file.truncate(len as u64).await.unwrap();
            want.truncate(len);
            assert_eq!(file.len_bytes().await.unwrap(), len as u64);
            for (position, count) in
                [(0, 100), (990, 100), (600, 500), (1000, 100), (4095, 2), (4096, 9000), (12_000, 90_000), (50_000, 1)]
            {
                let read = file.read_at(position as u64, count).await.unwrap();
                let from = position.min(len);
                assert_eq!(read[..], want[from..len.min(from + count)], "{len} {position} {count}");
            }
        }
        file.truncate(5000).await.unwrap();
        assert_eq!(file.read_at(0, 9000).await.unwrap()[..], vec![0; 5000], "extended with zeros");
    });
}

#[test]
fn a_long_read_is_made_in_steps() {
    // Rule: reads longer than one step are whole, also from an unaligned position.
    run("steps", |disk, dir| async move {
        let (file, want) = numbered_file(&disk, &dir.join("a"), 2 * DISK_READ_STEP_BYTES / BLOCK_BYTES + 3).await;
        let read = file.read_at(77, want.len()).await.unwrap();
        assert_eq!(read[..], want[77..]);
        let read = file.read_at(DISK_READ_STEP_BYTES as u64 - 1, 2).await.unwrap();
        assert_eq!(read[..], want[DISK_READ_STEP_BYTES - 1..=DISK_READ_STEP_BYTES]);
    });
}

#[test]
fn writes_overwrite_in_place_and_are_flushed() {
    // Rule: a block written replaces exactly that block; flushing works on files and directories.
    run("writes", |disk, dir| async move {
        let (file, mut want) = numbered_file(&disk, &dir.join("a"), 4).await;
        let mut buffer = file.allocate(1);
        assert_eq!(buffer.len(), BLOCK_BYTES, "rounded up to whole blocks");
        buffer.fill(9);
        file.write_at(buffer, BLOCK).await.unwrap();
        want[BLOCK_BYTES..2 * BLOCK_BYTES].fill(9);
        file.sync_data().await.unwrap();
        disk.sync_dir(&dir).await.unwrap();
        drop(file);
        let file = disk.open(&dir.join("a"), OpenMode::Read).await.unwrap();
        assert_eq!(file.read_at(0, 1 << 20).await.unwrap()[..], want[..]);
        let error = file.write_at(file.allocate(1), 0).await.unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EBADF), "opened to read only");
    });
}

#[test]
fn space_is_reserved_without_changing_the_length() {
    // Rule: a reservation shows in the length only when asked to.
    run("reserve", |disk, dir| async move {
        let (file, _) = numbered_file(&disk, &dir.join("a"), 1).await;
        file.preallocate(1 << 20, true).await.unwrap();
        assert_eq!(file.len_bytes().await.unwrap(), BLOCK);
        file.preallocate(1 << 20, false).await.unwrap();
        assert_eq!(file.len_bytes().await.unwrap(), 1 << 20);
        assert!(disk.space(&dir).await.unwrap().total_bytes >= disk.space(&dir).await.unwrap().usable_bytes);
    });
}

#[test]
fn names_come_and_go() {
    // Rule: open modes, listing, renaming and removing do what their names say, and errors keep their kind.
    run("names", |disk, dir| async move {
        let (a, b, sub) = (dir.join("a"), dir.join("b"), dir.join("x/y"));
        let missing = disk.open(&a, OpenMode::ReadWrite).await.err().unwrap();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        drop(numbered_file(&disk, &a, 1).await);
        let there = disk.open(&a, OpenMode::CreateNew).await.err().unwrap();
        assert_eq!(there.kind(), io::ErrorKind::AlreadyExists);
        drop(disk.open(&a, OpenMode::CreateOrOpen).await.unwrap());
        disk.create_dir_all(&sub).await.unwrap();
        disk.create_dir_all(&sub).await.unwrap();
        disk.rename(&a, &b).await.unwrap();
        let want = [("b", false, BLOCK), ("x", true, 0)];
        let want = want.map(|(name, is_dir, len_bytes)| DirEntry { name: name.to_owned(), is_dir, len_bytes });
        assert_eq!(disk.list_dir(&dir).await.unwrap(), want);
        assert!(disk.remove_dir(&dir.join("x")).await.is_err(), "not empty");
        disk.remove_dir(&sub).await.unwrap();
        disk.remove_file(&b).await.unwrap();
        assert_eq!(disk.remove_file(&b).await.unwrap_err().kind(), io::ErrorKind::NotFound);
    });
}

#[test]
fn many_operations_share_the_bound() {
    // Rule: more operations than the bound all complete, never more than the bound at a time.
    run("bound", |disk, dir| async move {
        let (file, want) = numbered_file(&disk, &dir.join("a"), 64).await;
        let (sender, mut receiver) = crate::runtime::channel::bounded(1);
        for number in 0..4 * DISK_OPERATIONS_IN_FLIGHT_MAX {
            let (file, sender) = (file.clone(), sender.clone());
            glommio::spawn_local(async move {
                let position = (number * 511) as u64 % (60 * BLOCK);
                let read = file.read_at(position, 3000).await.unwrap();
                assert!(sender.send((position as usize, read)).await.is_ok());
            })
            .detach();
        }
        drop(sender);
        let mut count = 0;
        while let Some((position, read)) = receiver.recv().await {
            assert_eq!(read[..], want[position..position + 3000]);
            count += 1;
        }
        assert_eq!(count, 4 * DISK_OPERATIONS_IN_FLIGHT_MAX);
        assert_eq!(disk.in_flight.available(), DISK_OPERATIONS_IN_FLIGHT_MAX);
    });
}

#[test]
fn large_files_go_in_pieces() {
    // Rule: pieces are taken off the end, the last one goes with the name; a file that is not there says so.
    run("pieces", |disk, dir| async move {
        let path = dir.join("f");
        let file = disk.open(&path, OpenMode::CreateNew).await.unwrap();
        file.truncate(2 * REMOVAL_STEP_BYTES + 1).await.unwrap();
        for want in [true, true, false] {
            assert_eq!(blocking::shorten(&path, REMOVAL_STEP_BYTES).unwrap(), want);
        }
        assert_eq!(file.len_bytes().await.unwrap(), 1);
        file.truncate(2 * REMOVAL_STEP_BYTES).await.unwrap();
        disk.remove_in_steps(&path).await.unwrap();
        assert_eq!(file.len_bytes().await.unwrap(), REMOVAL_STEP_BYTES);
        assert!(disk.list_dir(&dir).await.unwrap().is_empty());
        assert_eq!(disk.remove_in_steps(&path).await.unwrap_err().kind(), io::ErrorKind::NotFound);
    });
}
