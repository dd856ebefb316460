//! The lossy file system through the kernel: direct writes, flushes, power cuts.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use walser_tests::lossy_fs::LossyFs;

/// Room for one block at an aligned address.
#[repr(C, align(4096))]
struct Aligned([u8; 4096]);

fn write_block(path: &Path, fill: u8, flush: bool) -> io::Result<()> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).custom_flags(libc::O_DIRECT).open(path)?;
    file.write_all_at(&Aligned([fill; 4096]).0, 0)?;
    if flush { file.sync_data() } else { Ok(()) }
}

/// A flushed direct write is there after the cut; between cut and power-on every call fails.
#[test]
fn a_mounted_cut_keeps_what_was_flushed() {
    let mountpoint = std::env::temp_dir().join(format!("walser-lossy-{}", std::process::id()));
    fs::create_dir_all(&mountpoint).expect("mount point made");
    let lossy = LossyFs::mount(&mountpoint).expect("FUSE mounts: needs root and /dev/fuse");
    let log = mountpoint.join("log");
    write_block(&log, 1, true).expect("flushed");
    File::open(&mountpoint).and_then(|dir| dir.sync_all()).expect("name made durable");
    write_block(&mountpoint.join("unnamed"), 2, true).expect("written");

    lossy.power_cut(7);
    assert!(write_block(&log, 3, false).is_err(), "no power, no write");
    lossy.power_on();

    assert_eq!(fs::read(&log).expect("read back"), vec![1; 4096]);
    let names = fs::read_dir(&mountpoint).expect("listed").count();
    assert!(names <= 2, "{names} names");
    drop(lossy);
    fs::remove_dir(&mountpoint).expect("unmounted");
}
