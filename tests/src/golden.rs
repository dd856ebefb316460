//! Frames captured from real clients and brokers, as text files that say where each comes from.
//!
//! ```text
//! client: kcat 1.7.1, librdkafka 2.8.0
//! kind: request
//! api: Metadata
//! version: 12
//!
//! 0003000c00000001…           the frame after its size, in hexadecimal, any number of lines
//! ```

use std::path::{Path, PathBuf};

use walser_protocol::ApiKey;

/// Which side of a connection sent the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    Request,
    Response,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Response => "response",
        }
    }
}

/// One file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Golden {
    pub client: String,
    pub kind: Kind,
    pub key: ApiKey,
    pub version: i16,
    /// Header and body, without the size in front.
    pub frame: Vec<u8>,
}

impl Golden {
    pub fn file_name(&self) -> String {
        format!("{}-v{}-{}.txt", self.key.name(), self.version, self.kind.name())
    }

    pub fn to_text(&self) -> String {
        let mut text = format!(
            "client: {}\nkind: {}\napi: {}\nversion: {}\n\n",
            self.client,
            self.kind.name(),
            self.key.name(),
            self.version
        );
        for line in self.frame.chunks(48) {
            text.extend(line.iter().map(|byte| format!("{byte:02x}")));
            text.push('\n');
        }
        text
    }

    /// `None` when the text is not a golden file.
    pub fn from_text(text: &str) -> Option<Self> {
        let (head, body) = text.split_once("\n\n")?;
        let field = |name: &str| {
            head.lines().find_map(|line| line.split_once(": ").filter(|(key, _)| *key == name)).map(|(_, value)| value)
        };
        let kind = match field("kind")? {
            "request" => Kind::Request,
            "response" => Kind::Response,
            _ => return None,
        };
        let key = ApiKey::ALL.iter().copied().find(|key| Some(key.name()) == field("api"))?;
        let digits: String = body.split_whitespace().collect();
        let frame = (0..digits.len() / 2)
            .map(|index| digits.get(2 * index..2 * index + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok()))
            .collect::<Option<Vec<u8>>>()?;
        Some(Self { client: field("client")?.to_owned(), kind, key, version: field("version")?.parse().ok()?, frame })
    }
}

/// Every file under `tests/golden`, in the order of its path.
pub fn load_all() -> Vec<(PathBuf, Golden)> {
    let mut paths = Vec::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("golden")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                paths.push(path);
            }
        }
    }
    paths.sort();
    let load = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).expect("text");
        let golden = Golden::from_text(&text).unwrap_or_else(|| panic!("{} is not a golden file", path.display()));
        (path, golden)
    };
    paths.into_iter().map(load).collect()
}
