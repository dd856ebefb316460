//! The `decode` function of a struct.

use super::{Source, Target, rust_name};
use crate::layout::element_len_runs;
use crate::schema::{Field, Type};

pub(crate) fn emit(target: &Target<'_>, source: &mut Source) {
    let mut body = Source::default();
    let tagged = !target.tagged().is_empty();
    body.line(if tagged { "let mut this = Self {" } else { "let this = Self {" });
    for field in target.fields() {
        body.line(&format!("{}: {},", rust_name(&field.name), initial_value(target, field)));
    }
    body.line("};");
    emit_tags(target, &mut body);

    let lifetime = if target.lifetime().is_empty() { "'_" } else { "'a" };
    let mut head = Source::default();
    target.let_flexible(&body, &mut head);
    let version = if body.mentions("version") || head.mentions("version") { "version" } else { "_version" };
    let reader = if body.mentions("reader") { "reader" } else { "_reader" };
    if target.is_message || !target.decodes_straight() {
        let version = if target.is_message { "version" } else { version };
        let reader = if target.decodes_straight() { "reader" } else { reader };
        source.line(&format!(
            "pub fn decode({reader}: &mut Reader<{lifetime}>, {version}: i16) -> Result<Self, DecodeError> {{"
        ));
    }
    if target.is_message {
        source.line("check_version(version, Self::VERSION_MIN, Self::VERSION_MAX)?;");
    }
    if target.decodes_straight() {
        if target.is_message {
            source.line("match version {");
            for version in target.message.versions.first..target.message.versions.last {
                source.line(&format!("{version} => Self::decode_at::<{version}>(reader),"));
            }
            source.line(&format!("_ => Self::decode_at::<{}>(reader),", target.message.versions.last));
            source.line("}");
            source.line("}");
            source.line("");
        }
        source.line(&format!(
            "pub(crate) fn decode_at<const VERSION: i16>({reader}: &mut Reader<{lifetime}>) -> Result<Self, DecodeError> {{"
        ));
        source.line(&format!("let {version} = VERSION;"));
    }
    source.block(head);
    source.block(body);
    source.line("Ok(this)");
    source.line("}");
    source.line("");
}

/// What the field is before the tagged section is read. The initialisers run in the order of the wire.
fn initial_value(target: &Target<'_>, field: &Field) -> String {
    if field.tag.is_some() {
        return target.default_value(field);
    }
    let read = read_field(target, field);
    match target.condition(field.versions) {
        None => read,
        Some(condition) => format!("if {condition} {{ {read} }} else {{ {} }}", target.default_value(field)),
    }
}

fn emit_tags(target: &Target<'_>, body: &mut Source) {
    let flexible = target.flexible();
    if flexible == "false" {
        return;
    }
    let tagged = target.tagged();
    if flexible == "flexible" {
        body.line("if flexible {");
    }
    if tagged.is_empty() {
        body.line("reader.skip_tagged_fields()?;");
    } else {
        body.line("for _ in 0..reader.tag_count()? {");
        body.line("let (tag, mut inner) = reader.tagged_field()?;");
        body.line("let reader = &mut inner;");
        for (index, field) in tagged.iter().enumerate() {
            let guard = target.condition(field.versions).map_or(String::new(), |condition| format!(" && {condition}"));
            let otherwise = if index == 0 { "" } else { "} else " };
            body.line(&format!("{otherwise}if tag == {}{guard} {{", field.tag.unwrap_or_default()));
            body.line(&format!("this.{} = {};", rust_name(&field.name), read_field(target, field)));
            body.line("reader.expect_end()?;");
        }
        body.line("}");
        body.line("}");
    }
    if flexible == "flexible" {
        body.line("}");
    }
}

/// Expression that reads the field, `?` included.
fn read_field(target: &Target<'_>, field: &Field) -> String {
    let name = &field.name;
    let flexible = target.flexible();
    let nullable = target.nullable(field);
    if field.array {
        let least = element_len(target, field);
        let element = if let (Type::Struct(inner), true) = (&field.ty, target.decodes_straight()) {
            format!("{inner}::decode_at::<VERSION>")
        } else {
            format!("|reader| {}", read_value(target, field))
        };
        return match nullable {
            None => format!("reader.array({flexible}, {least}, \"{name}\", &mut {element})?"),
            Some(nullable) => {
                format!("reader.nullable_array({flexible}, {nullable}, {least}, \"{name}\", &mut {element})?")
            }
        };
    }
    let Some(nullable) = nullable else { return format!("{}?", read_value(target, field)) };
    if let Type::Struct(inner) = &field.ty {
        let (tagged, decode) = (field.tag.is_some(), call(target));
        return format!("reader.nullable_struct({nullable}, {tagged}, \"{name}\", |reader| {inner}::{decode})?");
    }
    let method = if field.ty == Type::String { "string" } else { "bytes" };
    let wrap = if field.ty == Type::Records && target.is_response() { ".map(Records::from)" } else { "" };
    format!("reader.nullable_{method}({flexible}, {nullable}, \"{name}\")?{wrap}")
}

/// How a nested struct's decode function is called.
fn call(target: &Target<'_>) -> &'static str {
    if target.decodes_straight() { "decode_at::<VERSION>(reader)" } else { "decode(reader, version)" }
}

/// Expression of type `Result` that reads one value that is not null.
fn read_value(target: &Target<'_>, field: &Field) -> String {
    let name = &field.name;
    let flexible = target.flexible();
    let method = match &field.ty {
        Type::Bool => "bool",
        Type::Int8 => "i8",
        Type::Int16 => "i16",
        Type::Uint16 => "u16",
        Type::Int32 => "i32",
        Type::Uint32 => "u32",
        Type::Int64 => "i64",
        Type::Float64 => "f64",
        Type::Uuid => "uuid",
        Type::String => return format!("reader.string({flexible}, \"{name}\")"),
        Type::Records if target.is_response() => {
            return format!("reader.bytes({flexible}, \"{name}\").map(Records::from)");
        }
        Type::Bytes | Type::Records => return format!("reader.bytes({flexible}, \"{name}\")"),
        Type::Struct(inner) => return format!("{inner}::{}", call(target)),
    };
    format!("reader.{method}(\"{name}\")")
}

/// Expression for the least bytes of one element.
fn element_len(target: &Target<'_>, field: &Field) -> String {
    let runs = element_len_runs(target.message, field);
    let Some(((_, last), before)) = runs.split_last() else { return "1".to_owned() };
    if before.is_empty() {
        return last.to_string();
    }
    let mut first = target.message.versions.first;
    let mut arms = String::new();
    for (version, len) in before {
        arms += &format!("{first}..={version} => {len}, ");
        first = version + 1;
    }
    format!("match version {{ {arms}_ => {last} }}")
}
