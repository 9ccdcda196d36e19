//! The subset of JSON Schema that the OpenAPI file uses: validating a value, and
//! generating one.

use serde_json::{Map, Value, json};

use super::fuzz::Random;

/// Follows a reference to its schema.
pub fn resolved<'d>(document: &'d Value, schema: &'d Value) -> &'d Value {
    match schema["$ref"].as_str() {
        Some(path) => {
            let found = document.pointer(path.strip_prefix('#').unwrap());
            found.unwrap_or_else(|| panic!("{path} not found"))
        }
        None => schema,
    }
}

/// Returns an error that describes the first mismatch.
pub fn check(document: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    let schema = resolved(document, schema);
    if let Some(any) = schema["anyOf"].as_array() {
        let fits = any.iter().any(|schema| check(document, schema, value).is_ok());
        return if fits { Ok(()) } else { Err(format!("{value} matches none of {any:?}")) };
    }
    let kinds: Vec<&str> = match &schema["type"] {
        Value::String(kind) => vec![kind],
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => return Ok(()),
    };
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let fits = kinds.contains(&kind) || kind == "integer" && kinds.contains(&"number");
    if !fits {
        return Err(format!("{value} has type {kind}, expected {kinds:?}"));
    }
    if let Some(allowed) = schema["enum"].as_array()
        && !allowed.contains(value)
    {
        return Err(format!("{value} is not one of {allowed:?}"));
    }
    match value {
        Value::Array(items) => {
            items.iter().try_for_each(|it| check(document, &schema["items"], it))
        }
        Value::Object(fields) => check_object(document, schema, fields),
        _ => Ok(()),
    }
}

fn check_object(
    document: &Value,
    schema: &Value,
    fields: &Map<String, Value>,
) -> Result<(), String> {
    for name in schema["required"].as_array().into_iter().flatten() {
        if !fields.contains_key(name.as_str().unwrap()) {
            return Err(format!("{name} is missing"));
        }
    }
    for (name, value) in fields {
        let own = &schema["properties"][name];
        let schema = if own.is_null() { &schema["additionalProperties"] } else { own };
        if *schema == Value::Bool(false) {
            return Err(format!("{name} is not documented"));
        }
        if schema.is_object() {
            check(document, schema, value).map_err(|why| format!("{name}: {why}"))?;
        }
    }
    Ok(())
}

/// Generates a value that mostly matches the schema.
pub fn generate(document: &Value, schema: &Value, random: &mut Random) -> Value {
    if random.one_in(25) {
        return random.strange();
    }
    let schema = resolved(document, schema);
    if let Some(choices) = schema["enum"].as_array() {
        return random.choice(choices).clone();
    }
    let kind = match &schema["type"] {
        Value::Array(kinds) => random.choice(kinds).clone(),
        kind => kind.clone(),
    };
    match kind.as_str().unwrap_or("string") {
        "null" => Value::Null,
        "boolean" => json!(random.one_in(2)),
        "integer" => {
            let least = schema["minimum"].as_i64().unwrap_or(-5);
            let most = schema["maximum"].as_i64().unwrap_or(400).min(400);
            json!(least + random.below((most - least).max(0) as u64 + 1) as i64)
        }
        "number" => json!(random.below(1000) as f64 / 7.0),
        "array" => {
            let count = random.below(4);
            (0..count).map(|_| generate(document, &schema["items"], random)).collect()
        }
        "object" => generate_object(document, schema, random),
        _ => json!(generate_text(schema, random)),
    }
}

fn generate_object(document: &Value, schema: &Value, random: &mut Random) -> Value {
    let mut fields = Map::new();
    for (name, own) in schema["properties"].as_object().into_iter().flatten() {
        let required = schema["required"].as_array().is_some_and(|all| all.contains(&json!(name)));
        if required && !random.one_in(40) || !required && random.one_in(2) {
            fields.insert(name.clone(), generate(document, own, random));
        }
    }
    if schema["additionalProperties"].is_object() {
        for _ in 0..random.below(3) {
            let key = random.choice(&["name", "os", "gpu", "k,=%", "ä"]).to_string();
            fields.insert(key, generate(document, &schema["additionalProperties"], random));
        }
    }
    Value::Object(fields)
}

/// Generates a string for a pattern, often one that the server has stored.
fn generate_text(schema: &Value, random: &mut Random) -> String {
    let pattern = schema["pattern"].as_str().unwrap_or_default();
    let known: &[&str] = if pattern.contains("{32}") {
        &["92eb5ffee6ae2fec3ad71c777531578f", "00000000000000000000000000000000"]
    } else if pattern.contains("{7,64}") {
        let hash = "00000000000000000000000000000000abc00001";
        if pattern.contains('@') { &["@0", "@5", "@299", "@300", hash] } else { &[hash, "abcdef1"] }
    } else if pattern.contains("A-Za-z") {
        &["t", "t", "t", "u1", "none"]
    } else if pattern.contains("=.+") {
        &["os=linux", "a=b=c"]
    } else {
        &[
            "t0",
            "os=x",
            "name=~t",
            "name=!t1",
            ",name=t0,os=x,",
            ",name=t0,",
            "",
            "a&b=",
            "ä %,=",
            "x",
        ]
    };
    random.choice(known).to_string()
}
