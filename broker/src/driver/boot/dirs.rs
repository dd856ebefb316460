//! Whose the data directories are, and whether they belong together: each has the ids of its cluster and node, and one of its
//! own (KIP-858). A new one becomes this node's.

use std::path::{Path, PathBuf};

use walser_protocol::types::Uuid;
use walser_storage::data_dir::{DataDir, DataDirError, MetaProperties};
use walser_storage::disk::Disk;
use walser_storage::error::DiskError;

use super::{BootError, QUORUM_DIR, random_uuid};
use crate::log_dirs::LogDir;

/// Why the directories are not one broker's. Each text names what to do.
#[derive(Debug, thiserror::Error)]
pub enum DirsError {
    #[error(
        "data directory {} belongs to node {found}, and node.id is {configured}; set node.id={found} or use another directory",
        path.display()
    )]
    OtherNode { path: PathBuf, found: i32, configured: i32 },
    #[error(
        "data directory {} belongs to cluster {found}, and {} to {cluster_id}; name only directories of one cluster",
        path.display(), metadata.display()
    )]
    OtherCluster { path: PathBuf, found: String, metadata: PathBuf, cluster_id: String },
    #[error(
        "data directories {} and {} have the same directory.id {id}: one is a copy of the other; remove one of them from log.dirs",
        path.display(), other.display()
    )]
    SameId { path: PathBuf, other: PathBuf, id: Uuid },
    #[error(
        "{} is to hold the metadata log and is empty, but {} belongs to cluster {cluster_id}: mount what belongs there, or name the directory that has it in metadata.log.dir or first in log.dirs",
        path.display(), other.display()
    )]
    NoMetadata { path: PathBuf, other: PathBuf, cluster_id: String },
    #[error(
        "there is a metadata log in {}, but {} is to hold it; name the directory that has it in metadata.log.dir or first in log.dirs",
        path.display(), metadata.display()
    )]
    MetadataElsewhere { path: PathBuf, metadata: PathBuf },
    #[error(
        "the metadata log is missing in {}, although there are partitions; restore its {QUORUM_DIR} directory from a backup, or start with empty directories",
        path.display()
    )]
    MetadataGone { path: PathBuf },
}

/// Whose the directories are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub cluster_id: String,
    /// Of the directory with the metadata log.
    pub metadata_id: Uuid,
    /// Of the others, in their order; `None` of one that cannot be used.
    pub other_ids: Vec<Option<Uuid>>,
    /// There is a metadata log.
    pub has_metadata: bool,
}

/// `metadata` holds the metadata log. One of the `others` that cannot be read is taken offline.
///
/// # Errors
/// When they do not belong together, or when the one with the metadata log cannot be read.
pub async fn identify<D: Disk>(
    metadata: &DataDir<D>,
    others: &[(&LogDir, DataDir<D>)],
    node_id: i32,
) -> Result<Identity, BootError> {
    let found = metadata.read_meta().await?;
    check_node(metadata.path(), found.as_ref(), node_id)?;
    let mut metas = Vec::with_capacity(others.len());
    for (log_dir, data_dir) in others {
        metas.push(or_offline(log_dir, look(data_dir, metadata.path(), node_id).await)?);
    }
    let cluster_id = match &found {
        Some(meta) => meta.cluster_id.clone(),
        None => {
            if let Some((meta, (_, other))) = metas.iter().zip(others).find_map(|(meta, dir)| {
                let meta = meta.as_ref()?.as_ref()?;
                Some((meta, dir))
            }) {
                let (path, other) = (metadata.path().to_owned(), other.path().to_owned());
                return Err(DirsError::NoMetadata { path, other, cluster_id: meta.cluster_id.clone() }.into());
            }
            random_uuid()?.to_string()
        }
    };
    let has_metadata = has_quorum(metadata).await?;
    // First of all, because the others say that there is one.
    let metadata_id = adopt(metadata, found, metadata.path(), &cluster_id, node_id).await?;
    let mut identity = Identity { cluster_id, metadata_id, other_ids: Vec::new(), has_metadata };
    for (meta, (log_dir, data_dir)) in metas.into_iter().zip(others) {
        let id = match meta {
            Some(meta) => {
                let adopted = adopt(data_dir, meta, metadata.path(), &identity.cluster_id, node_id).await;
                or_offline(log_dir, adopted)?
            }
            None => None,
        };
        identity.add(metadata.path(), others, data_dir.path(), id)?;
    }
    Ok(identity)
}

impl Identity {
    /// No two have the same id.
    fn add<D: Disk>(
        &mut self,
        metadata: &Path,
        others: &[(&LogDir, DataDir<D>)],
        path: &Path,
        id: Option<Uuid>,
    ) -> Result<(), DirsError> {
        let known = others.iter().map(|(_, data_dir)| data_dir.path()).zip(&self.other_ids);
        let mut known = known.filter_map(|(path, id)| id.map(|id| (path, id))).chain([(metadata, self.metadata_id)]);
        if let Some((other, id)) = known.find(|(_, known)| id == Some(*known)) {
            return Err(DirsError::SameId { path: path.to_owned(), other: other.to_owned(), id });
        }
        self.other_ids.push(id);
        Ok(())
    }
}

/// `None` when a directory cannot be used and the others can do without.
fn or_offline<T>(log_dir: &LogDir, outcome: Result<T, BootError>) -> Result<Option<T>, BootError> {
    match outcome {
        Ok(found) => Ok(Some(found)),
        Err(BootError::DataDir(error @ (DataDirError::Disk(_) | DataDirError::BadMeta { .. }))) => {
            log_dir.take_offline(&error.to_string());
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Whose a directory is that does not hold the metadata log.
async fn look<D: Disk>(
    data_dir: &DataDir<D>,
    metadata: &Path,
    node_id: i32,
) -> Result<Option<MetaProperties>, BootError> {
    let meta = data_dir.read_meta().await?;
    check_node(data_dir.path(), meta.as_ref(), node_id)?;
    if has_quorum(data_dir).await? {
        let (path, metadata) = (data_dir.path().to_owned(), metadata.to_owned());
        return Err(DirsError::MetadataElsewhere { path, metadata }.into());
    }
    Ok(meta)
}

fn check_node(path: &Path, meta: Option<&MetaProperties>, node_id: i32) -> Result<(), DirsError> {
    match meta {
        Some(meta) if meta.node_id != node_id => {
            Err(DirsError::OtherNode { path: path.to_owned(), found: meta.node_id, configured: node_id })
        }
        Some(_) | None => Ok(()),
    }
}

async fn has_quorum<D: Disk>(data_dir: &DataDir<D>) -> Result<bool, DiskError> {
    let listed = data_dir.disk().list_dir(data_dir.path()).await;
    let entries = listed.map_err(|error| DiskError::new("list", data_dir.path(), error))?;
    Ok(entries.iter().any(|entry| entry.is_dir && entry.name == QUORUM_DIR))
}

/// Makes a new directory this node's; its id.
async fn adopt<D: Disk>(
    data_dir: &DataDir<D>,
    meta: Option<MetaProperties>,
    metadata: &Path,
    cluster_id: &str,
    node_id: i32,
) -> Result<Uuid, BootError> {
    match meta {
        Some(meta) if meta.cluster_id == cluster_id => Ok(meta.directory_id),
        Some(meta) => {
            let (path, metadata) = (data_dir.path().to_owned(), metadata.to_owned());
            let (found, cluster_id) = (meta.cluster_id, cluster_id.to_owned());
            Err(DirsError::OtherCluster { path, found, metadata, cluster_id }.into())
        }
        None => {
            let directory_id = random_uuid()?;
            let meta = MetaProperties { cluster_id: cluster_id.to_owned(), node_id, directory_id };
            data_dir.write_meta(&meta).await.map_err(DataDirError::from)?;
            Ok(directory_id)
        }
    }
}

#[cfg(test)]
mod tests {
    use walser_storage::disk::simulated::SimulatedDisk;
    use walser_storage::runtime::simulated::SimulatedRuntime;

    use super::*;

    const NODE: i32 = 1;

    /// Directories /m, which is to hold the metadata log, /a and /b.
    struct World {
        runtime: SimulatedRuntime,
        disk: SimulatedDisk,
        log_dirs: Vec<LogDir>,
    }

    impl World {
        fn new() -> Self {
            let runtime = SimulatedRuntime::new(1);
            let disk = SimulatedDisk::new(&runtime);
            runtime.block_on(async {
                for path in ["/m", "/a", "/b"] {
                    disk.create_dir_all(Path::new(path)).await.unwrap();
                }
            });
            Self { runtime, disk, log_dirs: ["/a", "/b"].map(|path| LogDir::new(path.into(), 0)).into() }
        }

        fn data_dir(&self, path: &str) -> DataDir<SimulatedDisk> {
            DataDir::at(self.disk.clone(), path)
        }

        fn identify(&self) -> Result<Identity, BootError> {
            self.runtime.block_on(async {
                let others: Vec<_> =
                    self.log_dirs.iter().map(|dir| (dir, self.data_dir(dir.path().to_str().unwrap()))).collect();
                identify(&self.data_dir("/m"), &others, NODE).await
            })
        }

        fn write(&self, path: &str, meta: &MetaProperties) {
            self.runtime.block_on(async { self.data_dir(path).write_meta(meta).await.unwrap() });
        }

        fn meta(&self, path: &str) -> MetaProperties {
            self.runtime.block_on(async { self.data_dir(path).read_meta().await.unwrap().unwrap() })
        }

        fn make(&self, path: &str) {
            self.runtime.block_on(async { self.disk.create_dir_all(Path::new(path)).await.unwrap() });
        }
    }

    #[test]
    fn new_directories_become_this_nodes() {
        // Rule: one cluster, one node, and an id for each directory, which it keeps; one that is added later gets its own.
        let world = World::new();
        let first = world.identify().unwrap();
        assert!(!first.has_metadata);
        let ids = [Some(first.metadata_id), first.other_ids[0], first.other_ids[1]];
        assert!(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2] && ids.iter().all(Option::is_some));
        world.make("/m/quorum");
        assert_eq!(world.identify().unwrap(), Identity { has_metadata: true, ..first.clone() });
        world.runtime.block_on(async { world.disk.remove_file(Path::new("/b/meta.properties")).await.unwrap() });
        let again = world.identify().unwrap();
        assert_eq!((&again.cluster_id, again.other_ids[0]), (&first.cluster_id, first.other_ids[0]));
        assert_ne!(again.other_ids[1], first.other_ids[1]);
    }

    #[test]
    fn directories_that_do_not_belong_together_stop_the_start() {
        // Rule: each names the directory that is wrong; nothing is written to any.
        let fresh = || {
            let world = World::new();
            world.identify().unwrap();
            world
        };
        let world = fresh();
        let other = MetaProperties { node_id: 2, ..world.meta("/a") };
        world.write("/a", &other);
        assert!(matches!(world.identify(), Err(BootError::Dirs(DirsError::OtherNode { found: 2, .. }))));
        let world = fresh();
        let other = MetaProperties { cluster_id: "other".into(), ..world.meta("/b") };
        world.write("/b", &other);
        let error = world.identify().unwrap_err();
        assert!(matches!(&error, BootError::Dirs(DirsError::OtherCluster { .. })), "{error}");
        let world = fresh();
        let copied = world.meta("/a");
        world.write("/b", &copied);
        let error = world.identify().unwrap_err();
        assert!(matches!(&error, BootError::Dirs(DirsError::SameId { .. })), "{error}");
        assert!(error.to_string().contains("/a") && error.to_string().contains("/b"), "{error}");
        let world = fresh();
        world.runtime.block_on(async { world.disk.remove_file(Path::new("/m/meta.properties")).await.unwrap() });
        assert!(matches!(world.identify(), Err(BootError::Dirs(DirsError::NoMetadata { .. }))));
        let world = fresh();
        world.make("/a/quorum");
        assert!(matches!(world.identify(), Err(BootError::Dirs(DirsError::MetadataElsewhere { .. }))));
    }

    #[test]
    fn one_that_cannot_be_read_is_offline() {
        // Rule: the others go on; not so where it is the one with the metadata log.
        let world = World::new();
        let first = world.identify().unwrap();
        world.runtime.block_on(async {
            let path = Path::new("/b/meta.properties");
            walser_storage::checkpoint::replace_file(&world.disk, path, b"version=7\n").await.unwrap();
        });
        let identity = world.identify().unwrap();
        assert_eq!(identity.other_ids, [first.other_ids[0], None]);
        assert!(world.log_dirs[0].is_good() && world.log_dirs[1].is_offline());
        world.runtime.block_on(async {
            let path = Path::new("/m/meta.properties");
            walser_storage::checkpoint::replace_file(&world.disk, path, b"version=7\n").await.unwrap();
        });
        assert!(matches!(world.identify(), Err(BootError::DataDir(DataDirError::BadMeta { .. }))));
    }
}
