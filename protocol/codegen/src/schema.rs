//! The schema's model and its parser.

use std::fmt;

/// One `.kmsg` file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    pub api: Option<Api>,
    pub messages: Vec<Message>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Api {
    pub key: i16,
    pub name: String,
}

/// A top-level message. `structs` holds the nested ones, innermost first, whether written inline or as `struct`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub name: String,
    pub record_type: Option<i16>,
    pub versions: Versions,
    pub flexible: Option<i16>,
    /// Worth code of its own for every version.
    pub hot: bool,
    pub fields: Vec<Field>,
    pub structs: Vec<Struct>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Struct {
    pub name: String,
    pub fields: Vec<Field>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    pub name: String,
    pub ty: Type,
    pub array: bool,
    pub versions: Versions,
    pub nullable: Option<Versions>,
    pub tag: Option<u32>,
    pub default: Default,
    pub ignorable: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Default {
    Zero,
    Null,
    Literal(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    Bool,
    Int8,
    Int16,
    Uint16,
    Int32,
    Uint32,
    Int64,
    Float64,
    String,
    Bytes,
    Records,
    Uuid,
    Struct(String),
}

/// Inclusive at both ends; `last` is `i16::MAX` for an open range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    pub first: i16,
    pub last: i16,
}

impl Versions {
    pub fn contains(self, version: i16) -> bool {
        (self.first..=self.last).contains(&version)
    }

    pub fn overlaps(self, other: Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    pub fn covers(self, other: Self) -> bool {
        self.first <= other.first && other.last <= self.last
    }
}

/// Line numbers count from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    pub line: usize,
    pub problem: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.problem)
    }
}

impl std::error::Error for ParseError {}

impl Message {
    pub fn is_flexible(&self, version: i16) -> bool {
        self.flexible.is_some_and(|from| version >= from)
    }

    pub fn find_struct(&self, name: &str) -> Option<&Struct> {
        self.structs.iter().find(|known| known.name == name)
    }
}

struct Line<'t> {
    number: usize,
    depth: usize,
    words: Vec<&'t str>,
}

impl Line<'_> {
    fn fail<T>(&self, problem: impl Into<String>) -> Result<T, ParseError> {
        Err(ParseError { line: self.number, problem: problem.into() })
    }

    fn word(&self, index: usize) -> Result<&str, ParseError> {
        match self.words.get(index) {
            Some(word) => Ok(word),
            None => self.fail("the line ends too early"),
        }
    }
}

/// Parses a whole file.
pub fn parse(text: &str) -> Result<Schema, ParseError> {
    let mut lines = Vec::new();
    for (index, raw) in text.lines().enumerate() {
        let body = raw.trim_start();
        if body.is_empty() || body.starts_with('#') {
            continue;
        }
        let indent = raw.len() - body.len();
        let line = Line { number: index + 1, depth: indent / 2, words: body.split_whitespace().collect() };
        if indent % 2 != 0 || raw.contains('\t') {
            return line.fail("indentation is by two spaces");
        }
        lines.push(line);
    }
    let mut schema = Schema { api: None, messages: Vec::new() };
    let mut rest = lines.as_slice();
    while let Some((line, tail)) = rest.split_first() {
        let below = tail.iter().take_while(|below| below.depth > 0).count();
        let (inner, after) = tail.split_at(below);
        match line.words[0] {
            "api" => schema.api = Some(parse_api(line)?),
            "message" => schema.messages.push(parse_message(line, inner)?),
            other => return line.fail(format!("`{other}` instead of `api` or `message`")),
        }
        rest = after;
    }
    Ok(schema)
}

fn parse_api(line: &Line<'_>) -> Result<Api, ParseError> {
    Ok(Api { key: number(line, line.word(1)?)?, name: line.word(2)?.to_owned() })
}

fn parse_message(line: &Line<'_>, inner: &[Line<'_>]) -> Result<Message, ParseError> {
    let mut message = Message {
        name: line.word(1)?.to_owned(),
        record_type: None,
        versions: Versions { first: 0, last: -1 },
        flexible: None,
        hot: false,
        fields: Vec::new(),
        structs: Vec::new(),
    };
    let mut options = line.words.get(2..).unwrap_or_default();
    if let Some((&"hot", rest)) = options.split_last() {
        message.hot = true;
        options = rest;
    }
    for pair in options.chunks(2) {
        let [option, value] = pair else { return line.fail("an option without a value") };
        match *option {
            "type" => message.record_type = Some(number(line, value)?),
            "versions" => message.versions = versions(line, value)?,
            "flexible" if *value == "never" => {}
            "flexible" => message.flexible = Some(versions(line, value)?.first),
            other => return line.fail(format!("unknown option `{other}`")),
        }
    }
    if message.versions.last < message.versions.first || message.versions.last == i16::MAX {
        return line.fail("a message needs a closed range of versions");
    }
    message.fields = parse_fields(inner, 1, &mut message.structs)?;
    check_references(line, &message)?;
    Ok(message)
}

/// Fields at `depth`; structs met on the way are appended, the inner before the outer.
fn parse_fields(lines: &[Line<'_>], depth: usize, structs: &mut Vec<Struct>) -> Result<Vec<Field>, ParseError> {
    let mut fields = Vec::new();
    let mut rest = lines;
    while let Some((line, tail)) = rest.split_first() {
        if line.depth != depth {
            return line.fail("unexpected indentation");
        }
        let below = tail.iter().take_while(|below| below.depth > depth).count();
        let (inner, after) = tail.split_at(below);
        rest = after;
        if line.words[0] == "struct" {
            let nested = parse_fields(inner, depth + 1, structs)?;
            structs.push(Struct { name: line.word(1)?.to_owned(), fields: nested });
            continue;
        }
        let field = parse_field(line)?;
        if !inner.is_empty() {
            let Type::Struct(name) = &field.ty else { return line.fail("only a struct has fields") };
            let nested = parse_fields(inner, depth + 1, structs)?;
            structs.push(Struct { name: name.clone(), fields: nested });
        }
        fields.push(field);
    }
    Ok(fields)
}

fn parse_field(line: &Line<'_>) -> Result<Field, ParseError> {
    let written = line.word(1)?;
    let (array, ty) = match written.strip_prefix("[]") {
        Some(element) => (true, parse_type(element)),
        None => (false, parse_type(written)),
    };
    let mut field = Field {
        name: line.word(0)?.to_owned(),
        ty,
        array,
        versions: versions(line, line.word(2)?)?,
        nullable: None,
        tag: None,
        default: Default::Zero,
        ignorable: false,
    };
    let mut options = line.words[3..].iter();
    while let Some(option) = options.next() {
        if *option == "ignorable" {
            field.ignorable = true;
            continue;
        }
        let Some(value) = options.next() else { return line.fail(format!("`{option}` without a value")) };
        match *option {
            "nullable" => field.nullable = Some(versions(line, value)?),
            "tag" => field.tag = Some(number(line, value)?),
            "default" if *value == "null" => field.default = Default::Null,
            "default" => field.default = Default::Literal((*value).to_owned()),
            other => return line.fail(format!("unknown option `{other}`")),
        }
    }
    if field.default == Default::Null && field.nullable.is_none() {
        return line.fail("null as default of a field that is never null");
    }
    Ok(field)
}

fn parse_type(name: &str) -> Type {
    match name {
        "bool" => Type::Bool,
        "int8" => Type::Int8,
        "int16" => Type::Int16,
        "uint16" => Type::Uint16,
        "int32" => Type::Int32,
        "uint32" => Type::Uint32,
        "int64" => Type::Int64,
        "float64" => Type::Float64,
        "string" => Type::String,
        "bytes" => Type::Bytes,
        "records" => Type::Records,
        "uuid" => Type::Uuid,
        other => Type::Struct(other.to_owned()),
    }
}

fn check_references(line: &Line<'_>, message: &Message) -> Result<(), ParseError> {
    let nested = message.structs.iter().flat_map(|known| &known.fields);
    for field in message.fields.iter().chain(nested) {
        if let Type::Struct(name) = &field.ty
            && message.find_struct(name).is_none()
        {
            return line.fail(format!("field `{}` names the unknown type `{name}`", field.name));
        }
    }
    Ok(())
}

fn versions(line: &Line<'_>, text: &str) -> Result<Versions, ParseError> {
    if let Some(first) = text.strip_suffix('+') {
        return Ok(Versions { first: number(line, first)?, last: i16::MAX });
    }
    match text.split_once('-') {
        Some((first, last)) => Ok(Versions { first: number(line, first)?, last: number(line, last)? }),
        None => number(line, text).map(|only| Versions { first: only, last: only }),
    }
}

fn number<T: std::str::FromStr>(line: &Line<'_>, text: &str) -> Result<T, ParseError> {
    match text.parse() {
        Ok(value) => Ok(value),
        Err(_) => line.fail(format!("`{text}` is not a number here")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nesting_options_and_shared_structs_parse() {
        // Rule: indentation nests, options come in any order, structs are listed innermost first.
        let schema = parse(
            "# c\napi 7 Thing\n\nmessage ThingRequest versions 1-3 flexible 2+\n  a []Outer 0+ nullable 2+\n    b []Inner 2\n      c int32 0+ default -1 ignorable\n  s Shared 3+ tag 0\n  struct Shared\n    d string 0+\n",
        )
        .unwrap();
        let message = &schema.messages[0];
        assert_eq!(schema.api, Some(Api { key: 7, name: "Thing".into() }));
        let names: Vec<_> = message.structs.iter().map(|known| known.name.as_str()).collect();
        assert_eq!(names, ["Inner", "Outer", "Shared"]);
        assert_eq!(message.fields[0].nullable, Some(Versions { first: 2, last: i16::MAX }));
        assert_eq!(message.structs[0].fields[0].default, Default::Literal("-1".into()));
        assert_eq!(message.fields[1].tag, Some(0));
    }

    #[test]
    fn mistakes_are_reported_with_their_line() {
        // Rule: a schema that is not understood is an error that names the line.
        for (text, line) in [
            ("message A versions 0+ flexible 0+\n", 1),
            ("message A versions 0 flexible never\n  a int32\n", 2),
            ("message A versions 0 flexible never\n  a B 0+\n", 1),
            ("message A versions 0 flexible never\n   a int8 0\n", 2),
            ("message A versions 0 flexible never\n  a string 0 default null\n", 2),
            ("nonsense\n", 1),
        ] {
            assert_eq!(parse(text).unwrap_err().line, line, "{text}");
        }
    }
}
