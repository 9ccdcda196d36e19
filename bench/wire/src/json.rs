//! Lines of JSON.

use std::fmt::Display;

/// Builds one flat JSON object.
pub struct Json(String);

impl Json {
    pub fn new(head: &[(&str, &dyn Display)]) -> Self {
        let mut json = Json(String::from("{"));
        for (key, value) in head {
            json.text(key, &value.to_string());
        }
        json
    }

    pub fn text(&mut self, key: &str, value: &str) {
        self.key(key);
        if value.parse::<f64>().is_ok() {
            self.0.push_str(value);
        } else {
            self.0.push_str(&format!("{value:?}"));
        }
    }

    pub fn num(&mut self, key: &str, value: f64, decimals: usize) {
        self.key(key);
        self.0.push_str(&format!("{value:.decimals$}"));
    }

    fn key(&mut self, key: &str) {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        self.0.push_str(&format!("\"{key}\":"));
    }

    pub fn print(mut self) {
        self.0.push('}');
        println!("{}", self.0);
    }
}
