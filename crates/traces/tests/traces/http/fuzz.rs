//! Requests generated from the OpenAPI file, valid and almost valid. Every response
//! must have a documented status, type and schema, and no request may make the server
//! fail.

use serde_json::{Value, json};

use super::client::Web;
use super::schema::{check, generate};

/// A seeded random number generator.
pub struct Random(u64);

impl Random {
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end.max(1)
    }

    pub fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }

    pub fn choice<'c, T>(&mut self, from: &'c [T]) -> &'c T {
        &from[self.below(from.len() as u64) as usize]
    }

    pub fn strange(&mut self) -> Value {
        let values = [
            json!(null),
            json!(-1),
            json!(1e308),
            json!("\u{0}\u{7f}<script>"),
            json!("%"),
            json!("x".repeat(5000)),
            json!([]),
            json!({"a": {"b": []}}),
            json!(true),
            json!(u64::MAX),
        ];
        self.choice(&values).clone()
    }
}

pub async fn run(web: &Web, requests: usize) {
    let document = web.raw("GET", "/traces/openapi.json", "", String::new().into()).await.is(200);
    let mut operations = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            operations.push((path.clone(), method.to_uppercase(), operation.clone()));
        }
    }
    let mut random = Random(7);
    let mut answered = std::collections::BTreeMap::<u16, usize>::new();
    for at in 0..requests {
        let (path, method, operation) = &operations[at % operations.len()];
        let (page, content, body) = request(&document, path, operation, &mut random);
        let answer = web.send(method, &page, &content, body.clone()).await;
        *answered.entry(answer.status).or_default() += 1;
        let exchange = format!("{} {content} {body}\n{}", answer.request, answer.body);
        assert!(answer.status < 500, "{exchange}");
        let responses = &operation["responses"];
        let code = answer.status.to_string();
        let documented =
            if responses[&code].is_null() { &responses["default"] } else { &responses[&code] };
        let is_default = responses[&code].is_null();
        assert_eq!(is_default, answer.status >= 400, "{exchange}");
        let schema = &documented["content"][&answer.content_type]["schema"];
        assert!(!schema.is_null(), "{} is not documented: {exchange}", answer.content_type);
        if answer.content_type == "application/json" {
            let value: Value = serde_json::from_str(&answer.body).unwrap();
            if let Err(why) = check(&document, schema, &value) {
                panic!("{why}: {exchange}");
            }
        }
    }
    // Both valid and invalid requests were sent.
    assert!(answered[&200] > requests / 10, "{answered:?}");
    assert!(answered[&400] > requests / 20, "{answered:?}");
}

fn request(
    document: &Value,
    path: &str,
    operation: &Value,
    random: &mut Random,
) -> (String, String, String) {
    let mut page = path.to_string();
    let mut args = Vec::new();
    for parameter in operation["parameters"].as_array().unwrap() {
        let name = parameter["name"].as_str().unwrap();
        let text = |value: Value| match value {
            Value::String(text) => text,
            Value::Array(items) => items.first().and_then(Value::as_str).unwrap_or("a=b").into(),
            other => other.to_string(),
        };
        let value = text(generate(document, &parameter["schema"], random));
        if parameter["in"] == "path" {
            // A path parameter is never empty.
            let value = if value.is_empty() { "x".into() } else { value };
            page = page.replace(&format!("{{{name}}}"), &escaped(&value));
        } else if parameter["required"] == true && !random.one_in(30) || random.one_in(3) {
            args.push(format!("{name}={}", escaped(&value)));
        }
    }
    if random.one_in(40) {
        args.push("unknown=1".into());
    }
    if !args.is_empty() {
        page = format!("{page}?{}", args.join("&"));
    }
    let content = &operation["requestBody"]["content"];
    let Some(types) = content.as_object() else {
        return (page, String::new(), String::new());
    };
    let body = generate(document, &content["application/json"]["schema"], random).to_string();
    let content = if random.one_in(20) { "text/plain" } else { types.keys().next().unwrap() };
    let half = body.floor_char_boundary(body.len() / 2);
    let body = if random.one_in(20) { body[..half].to_string() } else { body };
    (page, content.to_string(), body)
}

fn escaped(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' | b'@' => (byte as char).to_string(),
        other => format!("%{other:02X}"),
    };
    text.bytes().map(byte).collect()
}
