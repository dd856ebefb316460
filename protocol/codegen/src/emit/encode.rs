//! The `encode` function of a struct.

use super::{Source, Target, rust_name};
use crate::schema::{Field, Type};

pub(crate) fn emit(target: &Target<'_>, source: &mut Source) {
    let mut body = Source::default();
    for field in target.fields() {
        match field.tag {
            None => emit_field(target, field, &mut body),
            Some(_) => emit_absent_tag(target, field, &mut body),
        }
    }
    emit_tags(target, &mut body);

    let mut head = Source::default();
    target.let_flexible(&body, &mut head);
    let version = if body.mentions("version") || head.mentions("version") { "version" } else { "_version" };
    let writer = if body.mentions("writer") { "writer" } else { "_writer" };
    if target.is_message || !target.encodes_straight() {
        let version = if target.is_message { "version" } else { version };
        let writer = if target.encodes_straight() { "writer" } else { writer };
        source.line(&format!(
            "pub fn encode(&self, {writer}: &mut Writer, {version}: i16) -> Result<(), EncodeError> {{"
        ));
    }
    if target.is_message {
        source.line("check_version(version, Self::VERSION_MIN, Self::VERSION_MAX)?;");
    }
    if target.encodes_straight() {
        if target.is_message {
            source.line("match version {");
            for version in target.message.versions.first..target.message.versions.last {
                source.line(&format!("{version} => self.encode_at::<{version}>(writer),"));
            }
            source.line(&format!("_ => self.encode_at::<{}>(writer),", target.message.versions.last));
            source.line("}");
            source.line("}");
            source.line("");
        }
        source.line(&format!(
            "pub(crate) fn encode_at<const VERSION: i16>(&self, {writer}: &mut Writer) -> Result<(), EncodeError> {{"
        ));
        source.line(&format!("let {version} = VERSION;"));
    }
    source.block(head);
    source.block(body);
    source.line("Ok(())");
    source.line("}");
    if target.is_message {
        source.line("");
        source.line("/// Exactly the bytes `encode` writes.");
        source.line("pub fn encoded_len(&self, version: i16) -> Result<usize, EncodeError> {");
        source.line("let mut writer = Writer::measuring();");
        source.line("self.encode(&mut writer, version)?;");
        source.line("Ok(writer.len())");
        source.line("}");
    }
}

fn emit_field(target: &Target<'_>, field: &Field, body: &mut Source) {
    let condition = target.condition(field.versions);
    let Some(condition) = condition else { return write_field(target, field, body) };
    body.line(&format!("if {condition} {{"));
    write_field(target, field, body);
    if !field.ignorable {
        body.line(&format!("}} else if {} {{", target.differs(field)));
        body.line(&format!("return unsupported(\"{}\", version);", field.name));
    }
    body.line("}");
}

fn emit_absent_tag(target: &Target<'_>, field: &Field, body: &mut Source) {
    if field.ignorable {
        return;
    }
    if let Some(condition) = target.condition(field.versions) {
        body.line(&format!("if {} && {} {{", Target::negate(&condition), target.differs(field)));
        body.line(&format!("return unsupported(\"{}\", version);", field.name));
        body.line("}");
    }
}

fn emit_tags(target: &Target<'_>, body: &mut Source) {
    let flexible = target.flexible();
    if flexible == "false" {
        return;
    }
    if flexible == "flexible" {
        body.line("if flexible {");
    }
    let tagged = target.tagged();
    if tagged.is_empty() {
        body.line("writer.tag_count(0);");
    } else {
        let conditions: Vec<_> = tagged
            .iter()
            .map(|field| match target.condition(field.versions) {
                Some(condition) => format!("{condition} && {}", target.differs(field)),
                None => target.differs(field),
            })
            .collect();
        let counts: Vec<_> = conditions.iter().map(|condition| format!("u32::from({condition})")).collect();
        body.line(&format!("writer.tag_count({});", counts.join(" + ")));
        for (field, condition) in tagged.iter().zip(&conditions) {
            body.line(&format!("if {condition} {{"));
            body.line(&format!("writer.tagged({}, &|writer: &mut Writer| {{", field.tag.unwrap_or_default()));
            write_field(target, field, body);
            body.line("Ok(())");
            body.line("})?;");
            body.line("}");
        }
    }
    if flexible == "flexible" {
        body.line("}");
    }
}

fn write_field(target: &Target<'_>, field: &Field, body: &mut Source) {
    let rust = rust_name(&field.name);
    let name = &field.name;
    let flexible = target.flexible();
    let nullable = target.nullable(field);
    if field.array {
        match nullable {
            None => {
                body.line(&format!("writer.array_len({flexible}, \"{name}\", self.{rust}.len())?;"));
                body.line(&format!("for element in &self.{rust} {{"));
                body.line(&write_value(target, field, "element", "*element"));
                body.line("}");
            }
            Some(nullable) => {
                body.line(&format!(
                    "for element in writer.nullable_array({flexible}, {nullable}, \"{name}\", self.{rust}.as_deref())? {{"
                ));
                body.line(&write_value(target, field, "element", "*element"));
                body.line("}");
            }
        }
        return;
    }
    let place = format!("self.{rust}");
    let Some(nullable) = nullable else {
        return body.line(&write_value(target, field, &place, &place));
    };
    if matches!(field.ty, Type::Struct(_)) {
        let tagged = field.tag.is_some();
        body.line(&format!(
            "if let Some(inner) = writer.nullable_struct({nullable}, {tagged}, \"{name}\", {place}.as_ref())? {{"
        ));
        body.line(&format!("inner.{};", call(target)));
        return body.line("}");
    }
    let method = match field.ty == Type::String {
        true => "string",
        false if field.ty == Type::Records && target.is_response() => "records",
        false => "bytes",
    };
    body.line(&format!("writer.nullable_{method}({flexible}, {nullable}, \"{name}\", {place})?;"));
}

/// How a nested struct's encode function is called.
fn call(target: &Target<'_>) -> &'static str {
    if target.encodes_straight() { "encode_at::<VERSION>(writer)?" } else { "encode(writer, version)?" }
}

/// Statement that writes one value that is not null; `place` is the place, `value` the value of a `Copy` type.
fn write_value(target: &Target<'_>, field: &Field, place: &str, value: &str) -> String {
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
        Type::String => return format!("writer.string({flexible}, \"{name}\", {place})?;"),
        Type::Records if target.is_response() => {
            return format!("writer.records({flexible}, \"{name}\", {value})?;");
        }
        Type::Bytes | Type::Records => return format!("writer.bytes({flexible}, \"{name}\", {place})?;"),
        Type::Struct(_) => return format!("{place}.{};", call(target)),
    };
    format!("writer.{method}({value});")
}
