//! File systems on images, mounted for a test and gone after it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What is mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Ext4,
    Xfs,
    Btrfs,
    /// Over a directory of an ext4 of its own.
    Overlay,
    Tmpfs,
}

impl Kind {
    pub const ALL: [Self; 5] = [Self::Ext4, Self::Xfs, Self::Btrfs, Self::Overlay, Self::Tmpfs];
}

/// A mounted file system; dropping it unmounts, detaches and removes it. Nobody may have a file open there by then.
pub struct Mounted {
    /// Mount points, the first mounted first.
    points: Vec<PathBuf>,
    image: Option<PathBuf>,
}

impl Mounted {
    /// Makes and mounts a file system of `bytes` in `dir`, an empty directory.
    ///
    /// # Errors
    /// Why it cannot be had here: no rights, no program to make it, or a kernel without it.
    pub fn new(kind: Kind, bytes: u64, dir: &Path) -> Result<Self, String> {
        let mut mounted = Self { points: Vec::new(), image: None };
        if kind == Kind::Tmpfs {
            let size = format!("size={bytes}");
            mounted.mount(dir, "fs", &["-t", "tmpfs", "-o", &size, "tmpfs"])?;
            return Ok(mounted);
        }
        let image = dir.join("image");
        File::create(&image).and_then(|file| file.set_len(bytes)).map_err(|error| error.to_string())?;
        mounted.image = Some(image.clone());
        let image = image.display().to_string();
        let (program, arguments): (&str, &[&str]) = match kind {
            Kind::Ext4 | Kind::Overlay | Kind::Tmpfs => ("mkfs.ext4", &["-q", "-F"]),
            Kind::Xfs => ("mkfs.xfs", &["-q", "-f"]),
            Kind::Btrfs => ("mkfs.btrfs", &["-q", "-f"]),
        };
        let arguments: Vec<&str> = arguments.iter().copied().chain([image.as_str()]).collect();
        run(program, &arguments)?;
        let below = if kind == Kind::Overlay { "below" } else { "fs" };
        mounted.mount(dir, below, &["-o", "loop", &image])?;
        if kind == Kind::Overlay {
            let below = dir.join(below);
            let parts = ["lower", "upper", "work"].map(|name| below.join(name));
            for part in &parts {
                fs::create_dir(part).map_err(|error| error.to_string())?;
            }
            let [lower, upper, work] = parts.map(|part| part.display().to_string());
            let options = format!("lowerdir={lower},upperdir={upper},workdir={work}");
            mounted.mount(dir, "fs", &["-t", "overlay", "-o", &options, "overlay"])?;
        }
        Ok(mounted)
    }

    pub fn path(&self) -> &Path {
        self.points.last().expect("something is mounted")
    }

    fn mount(&mut self, dir: &Path, name: &str, arguments: &[&str]) -> Result<(), String> {
        let point = dir.join(name);
        fs::create_dir(&point).map_err(|error| error.to_string())?;
        let text = point.display().to_string();
        let arguments: Vec<&str> = arguments.iter().copied().chain([text.as_str()]).collect();
        run("mount", &arguments)?;
        self.points.push(point);
        Ok(())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        for point in self.points.iter().rev() {
            let text = point.display().to_string();
            // One that is busy goes when whoever is there ends, and its loop device with it.
            if let Err(error) = run("umount", &[&text]).or_else(|_| run("umount", &["-l", &text])) {
                eprintln!("{text} is still mounted: {error}");
            }
        }
        if let Some(image) = &self.image
            && let Err(error) = fs::remove_file(image)
        {
            eprintln!("{} is still there: {error}", image.display());
        }
    }
}

fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let done = Command::new(program).args(arguments).env("PATH", path).output();
    let done = done.map_err(|error| format!("{program}: {error}"))?;
    if done.status.success() {
        return Ok(());
    }
    Err(format!("{program} {}: {}", arguments.join(" "), String::from_utf8_lossy(&done.stderr).trim()))
}
