//! A decoded answer as a tree of names and values, read from what `Debug` prints: one comparison for every message.

use std::fmt;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tree {
    /// A number, a boolean, an id, a quoted string, or `null`.
    Value(String),
    List(Vec<Tree>),
    Fields(Vec<(String, Tree)>),
}

impl Tree {
    pub fn value(text: impl fmt::Display) -> Self {
        Self::Value(text.to_string())
    }

    /// Reads what `{:?}` prints of a message.
    ///
    /// # Panics
    /// When it is not what derived `Debug` prints.
    pub fn from_debug(text: &str) -> Self {
        let mut parser = Parser { text, at: 0 };
        let tree = parser.tree();
        assert_eq!(parser.at, text.len(), "left over: {}", &text[parser.at..]);
        tree
    }

    pub fn field(&self, name: &str) -> Option<&Self> {
        match self {
            Self::Fields(fields) => fields.iter().find(|(field, _)| field == name).map(|(_, tree)| tree),
            Self::Value(_) | Self::List(_) => None,
        }
    }

    /// Calls `visit` with the path of every node below and at this one: field names with dots, `[]` for a list's elements.
    pub fn visit_mut(&mut self, path: &mut String, visit: &mut dyn FnMut(&str, &mut Self)) {
        visit(path, self);
        let len = path.len();
        match self {
            Self::Value(_) => {}
            Self::List(elements) => {
                path.push_str("[]");
                for element in elements {
                    element.visit_mut(path, visit);
                }
            }
            Self::Fields(fields) => {
                for (name, tree) in fields {
                    path.push('.');
                    path.push_str(name);
                    tree.visit_mut(path, visit);
                    path.truncate(len);
                }
            }
        }
        path.truncate(len);
    }

    /// Every place where two trees differ, as `path: this / that`.
    pub fn differences(&self, other: &Self, path: &str, into: &mut Vec<String>) {
        match (self, other) {
            (Self::List(these), Self::List(those)) => {
                if these.len() != those.len() {
                    into.push(format!("{path}: {} / {} elements: {self} / {other}", these.len(), those.len()));
                    return;
                }
                for (this, that) in these.iter().zip(those) {
                    this.differences(that, &format!("{path}[]"), into);
                }
            }
            (Self::Fields(these), Self::Fields(those)) if these.len() == those.len() => {
                for ((name, this), (_, that)) in these.iter().zip(those) {
                    this.differences(that, &format!("{path}.{name}"), into);
                }
            }
            _ if self == other => {}
            _ => into.push(format!("{path}: {self} / {other}")),
        }
    }
}

impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(text) => f.write_str(text),
            Self::List(elements) => {
                f.write_str("[")?;
                for (index, element) in elements.iter().enumerate() {
                    write!(f, "{}{element}", if index > 0 { ", " } else { "" })?;
                }
                f.write_str("]")
            }
            Self::Fields(fields) => {
                f.write_str("{")?;
                for (index, (name, tree)) in fields.iter().enumerate() {
                    write!(f, "{}{name}: {tree}", if index > 0 { ", " } else { "" })?;
                }
                f.write_str("}")
            }
        }
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl Parser<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn takes(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    fn expect(&mut self, token: &str) {
        assert!(self.takes(token), "want {token:?} at {:.80}", self.rest());
    }

    fn tree(&mut self) -> Tree {
        if self.takes("[") {
            return Tree::List(self.list("]"));
        }
        if self.rest().starts_with('"') {
            return Tree::Value(self.quoted());
        }
        let word_end = self.rest().find(|c: char| ",()[]{} ".contains(c)).unwrap_or(self.rest().len());
        let word = self.rest()[..word_end].to_owned();
        self.at += word_end;
        if self.takes(" { ") {
            return Tree::Fields(self.fields());
        }
        if word == "Records" {
            // Bytes, which are looked into elsewhere.
            let end = self.rest().find(')').map_or(self.rest().len(), |end| end + 1);
            self.at += end;
            return Tree::Value("records".to_owned());
        }
        if self.takes("(") {
            let mut inner = self.list(")");
            // Some(x) and newtypes are their content.
            return if inner.len() == 1 { inner.remove(0) } else { Tree::List(inner) };
        }
        Tree::Value(if word == "None" { "null".to_owned() } else { word })
    }

    fn list(&mut self, end: &str) -> Vec<Tree> {
        let mut elements = Vec::new();
        while !self.takes(end) {
            elements.push(self.tree());
            self.takes(", ");
        }
        elements
    }

    fn fields(&mut self) -> Vec<(String, Tree)> {
        let mut fields = Vec::new();
        while !self.takes(" }") {
            let colon = self.rest().find(": ").expect("a field has a colon");
            let name = self.rest()[..colon].to_owned();
            self.at += colon;
            self.expect(": ");
            fields.push((name, self.tree()));
            self.takes(", ");
        }
        fields
    }

    fn quoted(&mut self) -> String {
        let bytes = self.rest().as_bytes();
        let mut end = 1;
        while bytes[end] != b'"' {
            end += if bytes[end] == b'\\' { 2 } else { 1 };
        }
        let text = self.rest()[..=end].to_owned();
        self.at += end + 1;
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Only printed, never read otherwise.
    #[expect(dead_code, reason = "Debug is what is under test")]
    #[derive(Debug)]
    struct Inner {
        name: Option<&'static str>,
        ids: Vec<i32>,
    }

    #[expect(dead_code, reason = "Debug is what is under test")]
    #[derive(Debug)]
    struct Outer {
        inner: Vec<Inner>,
        none: Option<i32>,
        flag: bool,
    }

    #[test]
    fn debug_output_becomes_a_tree() {
        // Rule: names and values come through, Some is transparent, strings keep brackets and quotes within them.
        let inner = vec![Inner { name: Some("a \"b\", } ]"), ids: vec![-1, 2] }, Inner { name: None, ids: vec![] }];
        let tree = Tree::from_debug(&format!("{:?}", Outer { inner, none: None, flag: true }));
        let want = r#"{inner: [{name: "a \"b\", } ]", ids: [-1, 2]}, {name: null, ids: []}], none: null, flag: true}"#;
        assert_eq!(tree.to_string(), want);
        let mut differences = Vec::new();
        let mut other = tree.clone();
        other.visit_mut(&mut String::new(), &mut |path, node| {
            if path == ".inner[].name" {
                *node = Tree::value("x");
            }
        });
        tree.differences(&other, "T", &mut differences);
        assert_eq!(differences.len(), 2);
        assert_eq!(differences[1], "T.inner[].name: null / x");
    }
}
