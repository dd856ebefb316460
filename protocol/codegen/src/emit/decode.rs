//! The `decode` function of a struct.

use super::{Source, Target, rust_name};
use crate::layout::element_len_runs;
use crate::schema::{Field, Type};

pub(crate) fn emit(target: &Target<'_>, source: &mut Source) {
    let mut body = Source::default();
    for field in target.fields().filter(|field| field.tag.is_none()) {
        let assign = format!("this.{} = {};", rust_name(&field.name), read_field(target, field));
        match target.condition(field.versions) {
            None => body.line(&assign),
            Some(condition) => {
                body.line(&format!("if {condition} {{"));
                body.line(&assign);
                body.line("}");
            }
        }
    }
    emit_tags(target, &mut body);

    let lifetime = if target.lifetime().is_empty() { "'_" } else { "'a" };
    let mut head = Source::default();
    target.let_flexible(&body, &mut head);
    if target.is_message {
        head.line("check_version(version, Self::VERSION_MIN, Self::VERSION_MAX)?;");
    }
    let version = if body.mentions("version") || head.mentions("version") { "version" } else { "_version" };
    let reader = if body.mentions("reader") { "reader" } else { "_reader" };
    source.line(&format!(
        "pub fn decode({reader}: &mut Reader<{lifetime}>, {version}: i16) -> Result<Self, DecodeError> {{"
    ));
    source.block(head);
    source.line(if body.mentions("this") { "let mut this = Self::default();" } else { "let this = Self::default();" });
    source.block(body);
    source.line("Ok(this)");
    source.line("}");
    source.line("");
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
        body.line("match tag {");
        for field in tagged {
            let guard = target.condition(field.versions).map(|condition| format!(" if {condition}"));
            body.line(&format!("{} {}=> {{", field.tag.unwrap_or_default(), guard.map_or(String::new(), |g| g + " ")));
            body.line(&format!("this.{} = {};", rust_name(&field.name), read_field(target, field)));
            body.line("reader.expect_end()?;");
            body.line("}");
        }
        body.line("_ => {}");
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
        let element = match &field.ty {
            Type::Struct(inner) => format!("{inner}::decode(reader, version)"),
            _ => read_value(target, field),
        };
        return match nullable {
            None => format!("reader.array({flexible}, {least}, \"{name}\", |reader| {element})?"),
            Some(nullable) => {
                format!("reader.nullable_array({flexible}, {nullable}, {least}, \"{name}\", |reader| {element})?")
            }
        };
    }
    let Some(nullable) = nullable else { return format!("{}?", read_value(target, field)) };
    match &field.ty {
        Type::Struct(inner) => {
            format!("reader.nullable_struct({nullable}, \"{name}\", |reader| {inner}::decode(reader, version))?")
        }
        Type::String => format!("reader.nullable_string({flexible}, {nullable}, \"{name}\")?"),
        Type::Records if target.is_response() => {
            format!("reader.nullable_bytes({flexible}, {nullable}, \"{name}\")?.map(Records::from)")
        }
        _ => format!("reader.nullable_bytes({flexible}, {nullable}, \"{name}\")?"),
    }
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
        Type::Struct(inner) => return format!("{inner}::decode(reader, version)"),
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
    let arms: String = before.iter().map(|(version, len)| format!("..={version} => {len}, ")).collect();
    format!("match version {{ {arms}_ => {last} }}")
}
