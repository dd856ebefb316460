//! Rust source for one file of messages, and for the tables over all files.

mod decode;
mod encode;

use std::fmt::Write as _;

use crate::layout::{borrows, is_present, struct_len_min};
use crate::schema::{Default, Field, Message, Schema, Type, Versions};

/// A module to generate: its name and the schema it comes from.
pub struct Module<'s> {
    pub name: &'s str,
    pub schema: &'s Schema,
}

/// Source text with indentation by nesting; `line` opens and closes blocks by the braces it sees.
#[derive(Default)]
pub(crate) struct Source {
    text: String,
    depth: usize,
}

impl Source {
    pub(crate) fn line(&mut self, line: &str) {
        if line.starts_with(['}', ')']) {
            self.depth -= 1;
        }
        let _ = writeln!(self.text, "{:indent$}{line}", "", indent = self.depth * 4);
        if line.ends_with(['{', '(']) {
            self.depth += 1;
        }
    }

    pub(crate) fn block(&mut self, inner: Source) {
        for line in inner.text.lines() {
            self.line(line.trim_start());
        }
    }

    /// Whether the text uses the variable `word`; fields and literals of that name do not count.
    pub(crate) fn mentions(&self, word: &str) -> bool {
        let is_name = |c: char| c.is_alphanumeric() || c == '_';
        self.text.match_indices(word).any(|(at, _)| {
            let before = self.text[..at].chars().next_back();
            let after = self.text[at + word.len()..].chars().next();
            !before.is_some_and(|c| is_name(c) || c == '.' || c == '"') && !after.is_some_and(is_name)
        })
    }
}

/// A struct about to be emitted: a message itself or one nested in it.
pub(crate) struct Target<'m> {
    pub(crate) message: &'m Message,
    pub(crate) name: &'m str,
    pub(crate) fields: &'m [Field],
    pub(crate) is_message: bool,
}

impl Target<'_> {
    pub(crate) fn fields(&self) -> impl Iterator<Item = &Field> {
        self.fields.iter().filter(|field| is_present(self.message, field))
    }

    /// The tagged fields in the order of their tags, which is their order on the wire.
    pub(crate) fn tagged(&self) -> Vec<&Field> {
        let mut tagged: Vec<_> = self.fields().filter(|field| field.tag.is_some()).collect();
        tagged.sort_by_key(|field| field.tag);
        tagged
    }

    /// Expression for "this version is flexible": a constant where all versions agree.
    pub(crate) fn flexible(&self) -> &'static str {
        match self.message.flexible {
            None => "false",
            Some(from) if from <= self.message.versions.first => "true",
            Some(_) => "flexible",
        }
    }

    pub(crate) fn let_flexible(&self, body: &Source, source: &mut Source) {
        if let Some(from) = self.message.flexible
            && body.mentions("flexible")
        {
            source.line(&format!("let flexible = version >= {from};"));
        }
    }

    /// Expression that is true in `versions`, or `None` when it always is.
    pub(crate) fn condition(&self, versions: Versions) -> Option<String> {
        let all = self.message.versions;
        let Versions { first, last } = versions;
        match (first <= all.first, last >= all.last) {
            (true, true) => None,
            _ if !versions.overlaps(all) => Some("false".to_owned()),
            (false, true) => Some(format!("version >= {first}")),
            (true, false) => Some(format!("version <= {last}")),
            (false, false) if first == last => Some(format!("version == {first}")),
            (false, false) => Some(format!("({first}..={last}).contains(&version)")),
        }
    }

    /// The opposite of a condition that `condition` gave.
    pub(crate) fn negate(condition: &str) -> String {
        if let Some(first) = condition.strip_prefix("version >= ") {
            format!("version < {first}")
        } else if let Some(last) = condition.strip_prefix("version <= ") {
            format!("version > {last}")
        } else if let Some(only) = condition.strip_prefix("version == ") {
            format!("version != {only}")
        } else {
            format!("!{condition}")
        }
    }

    /// Whether the field is an `Option`, and if so the expression that says when null is legal.
    pub(crate) fn nullable(&self, field: &Field) -> Option<String> {
        let versions = field.nullable.filter(|versions| versions.overlaps(self.message.versions))?;
        Some(self.condition(versions).unwrap_or_else(|| "true".to_owned()))
    }

    fn lifetime(&self) -> &'static str {
        if borrows(self.message, self.fields) { "<'a>" } else { "" }
    }

    fn element_type(&self, field: &Field) -> String {
        match &field.ty {
            Type::Bool => "bool".to_owned(),
            Type::Int8 => "i8".to_owned(),
            Type::Int16 => "i16".to_owned(),
            Type::Uint16 => "u16".to_owned(),
            Type::Int32 => "i32".to_owned(),
            Type::Uint32 => "u32".to_owned(),
            Type::Int64 => "i64".to_owned(),
            Type::Float64 => "f64".to_owned(),
            Type::String => "&'a str".to_owned(),
            Type::Bytes => "&'a [u8]".to_owned(),
            Type::Records if self.is_response() => "Records<'a>".to_owned(),
            Type::Records => "&'a [u8]".to_owned(),
            Type::Uuid => "Uuid".to_owned(),
            Type::Struct(name) => {
                let inner = self.message.find_struct(name);
                let lends = inner.is_some_and(|inner| borrows(self.message, &inner.fields));
                format!("{name}{}", if lends { "<'a>" } else { "" })
            }
        }
    }

    /// Responses take records in several pieces, so that batches of different origin need no joining.
    pub(crate) fn is_response(&self) -> bool {
        self.message.name.ends_with("Response")
    }

    /// Whether decoding is straight-line code per version: of a hot message the broker reads.
    pub(crate) fn decodes_straight(&self) -> bool {
        self.message.hot && !self.is_response()
    }

    /// Whether encoding is straight-line code per version: of a hot message the broker writes.
    pub(crate) fn encodes_straight(&self) -> bool {
        self.message.hot && self.is_response()
    }

    fn field_type(&self, field: &Field) -> String {
        let element = self.element_type(field);
        let value = if field.array { format!("Vec<{element}>") } else { element };
        if self.nullable(field).is_some() { format!("Option<{value}>") } else { value }
    }

    fn default_value(&self, field: &Field) -> String {
        let optional = self.nullable(field).is_some();
        let is_null = field.default == Default::Null || field.ty == Type::Records;
        if optional && is_null {
            return "None".to_owned();
        }
        let value = match (&field.default, &field.ty) {
            (Default::Literal(literal), _) => literal.clone(),
            (Default::Zero | Default::Null, Type::String) if !field.array => "\"\"".to_owned(),
            (Default::Zero | Default::Null, _) => "Default::default()".to_owned(),
        };
        if optional { format!("Some({value})") } else { value }
    }

    fn has_plain_default(&self) -> bool {
        self.fields().all(|field| {
            let value = self.default_value(field);
            value == "None" || value == "\"\"" || value == "Default::default()"
        })
    }

    /// Expression that is true when the field differs from its default.
    pub(crate) fn differs(&self, field: &Field) -> String {
        let name = rust_name(&field.name);
        let default = self.default_value(field);
        let optional = self.nullable(field).is_some();
        let sized = field.array || matches!(field.ty, Type::String | Type::Bytes | Type::Records);
        if default == "None" {
            return format!("self.{name}.is_some()");
        }
        if sized && optional {
            return format!("self.{name}.as_ref().is_none_or(|value| !value.is_empty())");
        }
        if sized {
            return format!("!self.{name}.is_empty()");
        }
        match &field.ty {
            Type::Bool if default == "true" => format!("!self.{name}"),
            Type::Bool => format!("self.{name}"),
            Type::Uuid => format!("self.{name} != Uuid::ZERO"),
            Type::Struct(inner) if optional => format!("self.{name} != Some({inner}::default())"),
            Type::Struct(inner) => format!("self.{name} != {inner}::default()"),
            Type::Float64 => format!("self.{name} != f64::from({})", default.replace("Default::default()", "0_u8")),
            Type::Int8 | Type::Int16 | Type::Uint16 | Type::Int32 | Type::Uint32 | Type::Int64 => {
                format!("self.{name} != {}", default.replace("Default::default()", "0"))
            }
            Type::String | Type::Bytes | Type::Records => unreachable!("sized"),
        }
    }
}

/// A field's name as Rust writes it.
pub(crate) fn rust_name(name: &str) -> String {
    match name {
        "type" | "match" => format!("r#{name}"),
        other => other.to_owned(),
    }
}

/// All structs of one file.
pub fn generate_module(schema: &Schema) -> String {
    let mut source = Source::default();
    source.line("use crate::messages::prelude::*;");
    for message in &schema.messages {
        for inner in &message.structs {
            emit_target(&Target { message, name: &inner.name, fields: &inner.fields, is_message: false }, &mut source);
        }
        emit_target(&Target { message, name: &message.name, fields: &message.fields, is_message: true }, &mut source);
    }
    source.text
}

fn emit_target(target: &Target<'_>, source: &mut Source) {
    emit_struct(target, source);
    emit_size_check(target, source);
    let lifetime = target.lifetime();
    source.line("");
    source.line(&format!("impl{lifetime} {}{lifetime} {{", target.name));
    if target.is_message {
        emit_constants(target.message, source);
    }
    decode::emit(target, source);
    encode::emit(target, source);
    source.line("}");
    if target.is_message {
        source.line("");
        let name = format!("{}{}", target.name, if lifetime.is_empty() { "" } else { "<'_>" });
        source.line(&format!("message_body!({name});"));
    }
}

fn emit_struct(target: &Target<'_>, source: &mut Source) {
    let plain = target.has_plain_default();
    let lifetime = target.lifetime();
    source.line("");
    source.line(&format!("#[derive(Clone, Debug, PartialEq{})]", if plain { ", Default" } else { "" }));
    source.line(&format!("pub struct {}{lifetime} {{", target.name));
    for field in target.fields() {
        source.line(&format!("pub {}: {},", rust_name(&field.name), target.field_type(field)));
    }
    source.line("}");
    if plain {
        return;
    }
    let elided = if lifetime.is_empty() { "" } else { "<'_>" };
    source.line("");
    source.line(&format!("impl Default for {}{elided} {{", target.name));
    source.line("fn default() -> Self {");
    source.line("Self {");
    for field in target.fields() {
        source.line(&format!("{}: {},", rust_name(&field.name), target.default_value(field)));
    }
    source.line("}");
    source.line("}");
    source.line("}");
}

/// An element may not take more memory than its least bytes on the wire allow.
fn emit_size_check(target: &Target<'_>, source: &mut Source) {
    if target.is_message {
        return;
    }
    let message = target.message;
    let fields = message.structs.iter().flat_map(|known| &known.fields).chain(&message.fields);
    let uses = fields.filter(|field| field.array && field.ty == Type::Struct(target.name.to_owned()));
    let least = uses
        .flat_map(|field| {
            (message.versions.first..=message.versions.last).filter(|version| field.versions.contains(*version))
        })
        .map(|version| struct_len_min(message, target.fields, version).max(1))
        .min();
    if let Some(least) = least {
        let limit = least * crate::MEMORY_FACTOR_MAX;
        source.line(&format!("const _: () = assert!(size_of::<{}>() <= {limit});", target.name));
    }
}

fn emit_constants(message: &Message, source: &mut Source) {
    if let Some(number) = message.record_type {
        source.line("/// The record type that stands in front of the body.");
        source.line(&format!("pub const RECORD_TYPE: i16 = {number};"));
    }
    source.line(&format!("pub const VERSION_MIN: i16 = {};", message.versions.first));
    source.line(&format!("pub const VERSION_MAX: i16 = {};", message.versions.last));
    source.line("");
}

/// `for_each_message!`: calls a macro with one line per top-level message.
pub fn generate_message_list(modules: &[Module<'_>], records: &[Module<'_>]) -> String {
    let mut source = Source::default();
    source.line("/// Calls `$callback!` with `path::Type;` for every top-level message of every module.");
    source.line("#[macro_export]");
    source.line("macro_rules! for_each_message {");
    source.line("($callback:ident) => {");
    source.line("$callback! {");
    for (prefix, list) in [("", modules), ("records::", records)] {
        for module in list {
            for message in &module.schema.messages {
                source.line(&format!("{prefix}{}::{};", module.name, message.name));
            }
        }
    }
    source.line("}");
    source.line("};");
    source.line("}");
    source.text
}

/// The `ApiKey` enum and its table, from the files that name an API key.
///
/// # Errors
///
/// When a file has not exactly a request and a response that agree in their versions.
pub fn generate_api_table(modules: &[Module<'_>]) -> Result<String, String> {
    let mut apis = Vec::new();
    for module in modules {
        let (Some(api), [request, response]) = (&module.schema.api, module.schema.messages.as_slice()) else {
            return Err(format!("{}: a request and a response expected", module.name));
        };
        if request.versions != response.versions || request.flexible != response.flexible {
            return Err(format!("{}: request and response disagree about versions", module.name));
        }
        apis.push((api, request));
    }
    apis.sort_by_key(|(api, _)| api.key);
    let mut source = Source::default();
    source.line("/// What a request asks for. The discriminant is the number on the wire.");
    source.line("#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]");
    source.line("#[repr(i16)]");
    source.line("pub enum ApiKey {");
    for (api, _) in &apis {
        source.line(&format!("{} = {},", api.name, api.key));
    }
    source.line("}");
    source.line("");
    source.line("impl ApiKey {");
    source.line("/// Every key, in the order of its number.");
    source.line(&format!("pub const ALL: [Self; {}] = [", apis.len()));
    for (api, _) in &apis {
        source.line(&format!("Self::{},", api.name));
    }
    source.line("];");
    source.line("");
    source.line("/// `None` for a number that no live API has.");
    source.line("#[expect(clippy::too_many_lines, reason = \"a table\")]");
    source.line("pub const fn from_wire(raw: i16) -> Option<Self> {");
    source.line("Some(match raw {");
    for (api, _) in &apis {
        source.line(&format!("{} => Self::{},", api.key, api.name));
    }
    source.line("_ => return None,");
    source.line("})");
    source.line("}");
    source.line("");
    source.line("/// Name and versions of the schema.");
    source.line("#[expect(clippy::too_many_lines, reason = \"a table\")]");
    source.line("pub const fn spec(self) -> ApiSpec {");
    source.line("match self {");
    for (api, request) in &apis {
        let Versions { first, last } = request.versions;
        let flexible = request.flexible;
        source.line(&format!("Self::{0} => ApiSpec::new(\"{0}\", {first}, {last}, {flexible:?}),", api.name));
    }
    source.line("}");
    source.line("}");
    source.line("}");
    Ok(source.text)
}
